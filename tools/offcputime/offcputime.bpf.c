// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "lockholder.bpf.h"
#include "stackid.bpf.h"
#include "task.bpf.h"

struct off_note {
	stack_id_t kernel_stack;
	stack_id_t user_stack;
	struct lock_holder holder; /* with want_holder */
};

#include "offtask.bpf.h"

static __always_inline void note_wait(void *ctx, struct off_note *note)
{
	note->kernel_stack = wanted_kernel_stack(ctx);
	note->user_stack = wanted_user_stack(ctx);
	if (want_holder)
		lock_holder_read(&note->holder);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch__btf, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return off_switch(ctx, prev, preempt, next);
}

SEC("raw_tp/sched_switch")
int BPF_PROG(switch__raw, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return off_switch(ctx, prev, preempt, next);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
