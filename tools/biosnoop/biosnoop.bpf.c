// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

/* Only requests with at least this device time. */
const volatile __u64 targ_min_ns = 0;

struct io_owner {
	struct task_info task;
};

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
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

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
