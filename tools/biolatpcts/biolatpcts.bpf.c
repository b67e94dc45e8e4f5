// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "task.bpf.h"

enum start {
	START_ISSUE, /* the last issue to the driver */
	START_AFTER_ALLOC, /* the kernel has allocated the request */
	START_FROM_ALLOC, /* the kernel begins to allocate the request */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum start *start_type __attribute__((unused));

/* The start of the time that is measured: enum start. */
const volatile __u32 targ_start = START_ISSUE;

struct hist_key {
	__u32 dev;
	__u32 op;
};

#include "hist.bpf.h"

struct io_owner {
};

#define RQ_COUNTERS __u64 untimed; /* without the time of the allocation; lost (unobserved) */
#include "rq.bpf.h"

/* Exists with CONFIG_BLK_RQ_ALLOC_TIME. */
struct request___alloc {
	__u64 alloc_time_ns;
} __attribute__((preserve_access_index));

static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp)
{
}

static __always_inline __u64 rq_alloc_ns(struct request *rq, const bool direct)
{
	struct request___alloc *old = (void *)rq;

	if (!bpf_core_field_exists(old->alloc_time_ns))
		return 0;
	return block_read(direct, old, alloc_time_ns);
}

/* The start in CLOCK_MONOTONIC, 0 if the kernel has not recorded it. */
static __always_inline __u64 rq_start_ns(struct io *io, struct request *rq, const bool direct)
{
	if (targ_start == START_AFTER_ALLOC)
		return block_read(direct, rq, start_time_ns);
	if (targ_start == START_FROM_ALLOC)
		return rq_alloc_ns(rq, direct);
	return io->issue_ns;
}

static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct)
{
	struct hist_key key = {};
	__u64 start_ns = rq_start_ns(io, rq, direct);

	if (!start_ns) {
		counter_add(untimed);
		lost_add(unobserved);
		return;
	}
	if (now_ns < start_ns) {
		counter_add(negative);
		return;
	}
	key.dev = rq_dev(rq, direct);
	key.op = block_op(block_read(direct, rq, cmd_flags));
	hist_record(&key, now_ns - start_ns);
}

/* block_io_start exists from 6.5 on (5a80bd075f3b). */
HOOK(submit, block_io_start, handle_submit(ctx, (void *)ctx[0], direct))
PROGRAMS(submit__oldbtf, submit__oldraw, block_rq_insert,
	 handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(issue, block_rq_issue, handle_issue(ctx, block_arg(ctx, block_rq_issue), direct))
HOOK(requeue, block_rq_requeue, handle_requeue(block_arg(ctx, block_rq_requeue), direct))
HOOK(merge, block_rq_merge, handle_merge(block_arg(ctx, block_rq_merge), direct))
HOOK(complete, block_rq_complete,
     handle_complete(ctx, (void *)ctx[0], ctx[1], ctx[2], bpf_ktime_get_ns(), direct))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
