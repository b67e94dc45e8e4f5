// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

struct off_note {
	__u64 kernel_stack;
	__u64 user_stack;
};

#include "offtask.bpf.h"

static __always_inline void handle_out(void *ctx, struct task_struct *prev, bool preempt, __u64 now_ns)
{
	struct off_wait *wait = off_begin(prev, preempt);

	if (!wait)
		return;
	wait->note.kernel_stack = wanted_kernel_stack(ctx);
	wait->note.user_stack = wanted_user_stack(ctx);
	wait->since_ns = now_ns;
}

static __always_inline int handle_switch(void *ctx, struct task_struct *prev, bool preempt,
					 struct task_struct *next)
{
	__u64 now_ns = bpf_ktime_get_ns();

	handle_out(ctx, prev, preempt, now_ns);
	off_count(next, now_ns);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch__btf, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return handle_switch(ctx, prev, preempt, next);
}

SEC("raw_tp/sched_switch")
int BPF_PROG(switch__raw, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return handle_switch(ctx, prev, preempt, next);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
