// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "compat.bpf.h"
#include "loop.bpf.h"
#include "lost.bpf.h"
#include "task.bpf.h"

/* Measure from the insertion, or all three stages at once. */
const volatile bool targ_queued = false;
const volatile bool want_stages = false;
/* Group histograms by these. */
const volatile bool want_disk = false;
const volatile bool want_partition = false;
const volatile bool want_operation = false;
const volatile bool want_flags = false;
/* Trace bios of disks without requests too. */
const volatile bool want_bios = false;

enum stage {
	STAGE_NONE,
	STAGE_QUEUE, /* insertion to issue, 0 if it was never inserted */
	STAGE_DEVICE, /* issue to completion */
	STAGE_TOTAL, /* insertion, or issue if never inserted, to completion */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum stage *stage_type __attribute__((unused));

/* Members that are not grouped by are 0. */
struct hist_key {
	__u64 cgroup_id;
	__u32 dev;
	__u32 part;
	__u16 flags;
	__u8 op;
	__u8 stage;
	__u32 pad;
};

#include "hist.bpf.h"

struct io_owner {
	__u64 cgroup_id;
};

#include "rq.bpf.h"

static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp)
{
	owner->cgroup_id = BPF_CORE_READ(cgrp, kn, id);
}

/* Not inlined, because there are several calls. */
static __noinline void record(struct hist_key *key, __u64 from_ns, __u64 to_ns)
{
	if (to_ns < from_ns)
		counter_add(negative);
	else
		hist_record(key, to_ns - from_ns);
}

static __always_inline void key_add_flags(struct hist_key *key, __u32 cmd_flags)
{
	if (want_operation || want_flags)
		key->op = block_op(cmd_flags);
	if (want_flags)
		key->flags = block_flags(cmd_flags);
}

#include "bios.bpf.h"

static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct)
{
	struct hist_key key = {};

	if (want_disk)
		key.dev = rq_dev(rq, direct);
	if (want_partition)
		key.part = rq_part_dev(rq, direct);
	if (want_operation || want_flags)
		key_add_flags(&key, block_read(direct, rq, cmd_flags));
	if (want_owner)
		key.cgroup_id = io->owner.cgroup_id;
	if (want_stages) {
		key.stage = STAGE_QUEUE;
		record(&key, io->begin_ns, io->issue_ns);
		key.stage = STAGE_DEVICE;
		record(&key, io->issue_ns, now_ns);
		key.stage = STAGE_TOTAL;
	}
	record(&key, want_stages || targ_queued ? io->begin_ns : io->issue_ns, now_ns);
}

static __always_inline int handle_end(void *ctx, struct request *rq, __u32 error, __u32 nr_bytes,
				      const bool direct)
{
	__u64 now_ns = bpf_ktime_get_ns();

	if (want_bios)
		bios_complete(rq, error, nr_bytes, now_ns, direct);
	return handle_complete(ctx, rq, error, nr_bytes, now_ns, direct);
}

/* block_io_start exists from 6.5 on (5a80bd075f3b). */
HOOK(submit, block_io_start, handle_submit(ctx, (void *)ctx[0], direct))
PROGRAMS(submit__oldbtf, submit__oldraw, block_rq_insert,
	 handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(insert, block_rq_insert, handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(issue, block_rq_issue, handle_issue(ctx, block_arg(ctx, block_rq_issue), direct))
HOOK(requeue, block_rq_requeue, handle_requeue(block_arg(ctx, block_rq_requeue), direct))
HOOK(merge, block_rq_merge, handle_merge(block_arg(ctx, block_rq_merge), direct))
HOOK(complete, block_rq_complete, handle_end(ctx, (void *)ctx[0], ctx[1], ctx[2], direct))
HOOK(bioqueue, block_bio_queue, handle_bio_queue(block_arg(ctx, block_bio_queue), direct))
HOOK(biocomplete, block_bio_complete, handle_bio_complete((void *)ctx[1], direct))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
