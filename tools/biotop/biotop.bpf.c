// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "filekey.bpf.h"
#include "task.bpf.h"

struct submitter {
	__u64 cgroup_id;
	__u32 pid;
	__u32 uid;
	char comm[TASK_COMM_LEN];
};

struct io_owner {
	struct submitter task;
	struct io_file file; /* if want_file */
};

#define RQ_COUNTERS BIOFILE_COUNTERS
#define RQ_ISSUED(io, rq) BIOFILE_ISSUED(io, rq)

#include "rq.bpf.h"

struct table_key {
	struct submitter task;
	struct file_key file;
	__u32 dev;
	__u32 op;
};

struct table_value {
	__u64 ios;
	__u64 bytes;
	__u64 total_ns;
	__u64 errors;
	char name[NAME_MAX + 1]; /* of the file */
};

#include "table.bpf.h"

static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp)
{
	owner->task.cgroup_id = BPF_CORE_READ(cgrp, kn, id);
	owner->task.pid = BPF_CORE_READ(task, tgid);
	owner->task.uid = BPF_CORE_READ(task, cred, uid.val);
	BPF_CORE_READ_STR_INTO(&owner->task.comm, task, comm);
	if (want_file)
		io_file_begin(&owner->file, task, owner->task.cgroup_id);
}

static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct)
{
	struct table_key key = {
		.task = io->owner.task,
		.dev = rq_dev(rq, direct),
		.op = block_op(block_read(direct, rq, cmd_flags)),
	};
	struct table_value *value;

	if (now_ns < io->issue_ns) {
		counter_add(negative);
		return;
	}
	if (want_file)
		file_key_read(&key.file, &io->owner.file);
	value = table_find(&key);
	if (!value)
		return;
	if (want_file)
		file_name_read(value->name, &io->owner.file);
	table_add(value, ios, 1);
	table_add(value, bytes, io->bytes);
	table_add(value, total_ns, now_ns - io->issue_ns);
	table_add(value, errors, error != 0);
}

SETTLE_DIRTIERS

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
