// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "task.bpf.h"

struct hist_key {
	char comm[TASK_COMM_LEN];
};

#include "hist.bpf.h"

struct io_owner {
	char comm[TASK_COMM_LEN];
};

#include "rq.bpf.h"

static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp)
{
	BPF_CORE_READ_STR_INTO(&owner->comm, task, comm);
}

static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct)
{
	struct hist_key key = {};

	__builtin_memcpy(key.comm, io->owner.comm, sizeof(key.comm));
	hist_record(&key, io->bytes);
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
