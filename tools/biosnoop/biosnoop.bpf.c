// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "biofile.bpf.h"
#include "biotail.bpf.h"
#include "block.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

/* Only requests with at least this device time. */
const volatile __u64 targ_min_ns = 0;

struct io_owner {
	struct task_info task;
	struct io_file file; /* if want_file */
};

#define RQ_COUNTERS BIOFILE_COUNTERS
#define RQ_ISSUED(io, rq) BIOFILE_ISSUED(io, rq)

#include "rq.bpf.h"

struct event {
	struct task_info task;
	__u64 sector;
	__u64 bytes;
	__u64 queue_ns;
	__u64 latency_ns;
	__u32 dev;
	__u32 part;
	__u8 op;
	__u8 error; /* block status */
	__u16 flags;
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp)
{
	task_info_read(&owner->task, task);
	owner->task.cgroup_id = BPF_CORE_READ(cgrp, kn, id);
	if (want_file)
		io_file_begin(&owner->file, task, owner->task.cgroup_id);
}

/* An event with its file. */
struct file_event {
	struct event event;
	struct io_tail tail;
	char names[PATH_BUF_SIZE];
};

/*
 * One per level: a program in a task can be interrupted by the same program in a softirq, and that
 * one by an interrupt. User space sets the number.
 */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct file_event);
} file_events SEC(".maps") USER_SPACE;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} file_levels SEC(".maps");

static __always_inline void send_with_file(void *ctx, struct file_event *fe, const struct event *e,
					   struct io_file *file)
{
	__u32 len;

	fe->event = *e;
	__builtin_memset(&fe->tail, 0, sizeof(fe->tail));
	io_tail_read(&fe->tail, fe->names, file);
	len = fe->tail.path.len;
	if (len <= PATH_BUF_SIZE)
		event_send(ctx, fe, offsetof(struct file_event, names) + len, e->task.time_ns);
}

static __always_inline void event_with_file(void *ctx, const struct event *e, struct io_file *file)
{
	__u32 zero = 0, level;
	volatile __u32 *next = bpf_map_lookup_elem(&file_levels, &zero);
	struct file_event *fe;

	if (!next)
		return;
	level = *next;
	fe = bpf_map_lookup_elem(&file_events, &level);
	if (!fe) {
		lost_add(program_busy);
		return;
	}
	*next = level + 1;
	send_with_file(ctx, fe, e, file);
	*next = level;
}

static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct)
{
	__u32 cmd_flags = block_read(direct, rq, cmd_flags);
	struct event e = { .task = io->owner.task };

	if (now_ns < io->issue_ns || io->issue_ns < io->begin_ns) {
		counter_add(negative);
		return;
	}
	e.latency_ns = now_ns - io->issue_ns;
	if (e.latency_ns < targ_min_ns)
		return;
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.queue_ns = io->issue_ns - io->begin_ns;
	e.sector = rq_first_sector(io, rq, direct);
	e.bytes = io->bytes;
	e.dev = rq_dev(rq, direct);
	e.part = rq_part_dev(rq, direct);
	e.op = block_op(cmd_flags);
	e.flags = block_flags(cmd_flags);
	e.error = error;
	if (want_file)
		event_with_file(ctx, &e, &io->owner.file);
	else
		event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

SETTLE_DIRTIERS

/* block_io_start exists from 6.5 on (5a80bd075f3b). */
HOOK(submit, block_io_start, handle_submit(ctx, (void *)ctx[0], direct))
PROGRAMS(submit__oldbtf, submit__oldraw, block_rq_insert,
	 handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(insert, block_rq_insert, handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(issue, block_rq_issue, handle_issue(ctx, block_arg(ctx, block_rq_issue), direct))
HOOK(requeue, block_rq_requeue, handle_requeue(block_arg(ctx, block_rq_requeue), direct))
HOOK(merge, block_rq_merge, handle_merge(block_arg(ctx, block_rq_merge), direct))
HOOK(complete, block_rq_complete,
     handle_complete(ctx, (void *)ctx[0], ctx[1], ctx[2], bpf_ktime_get_ns(), direct))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
