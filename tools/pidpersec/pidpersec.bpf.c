// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

struct totals {
	__u64 processes;
	__u64 threads;
};

#include "totals.bpf.h"
#include "lost.bpf.h"

/* Runs in the creator when the task can no longer fail to be created. */
static __always_inline int handle_new(struct task_struct *task)
{
	if (!task_current_wanted())
		return 0;
	if (BPF_CORE_READ(task, pid) == BPF_CORE_READ(task, tgid))
		totals_add(processes, 1);
	else
		totals_add(threads, 1);
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(create__btf, struct task_struct *task)
{
	return handle_new(task);
}

SEC("raw_tp/task_newtask")
int BPF_PROG(create__raw, struct task_struct *task)
{
	return handle_new(task);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
