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
	stack_id_t holder_kernel_stack; /* when it released the lock, with want_holder_stack */
	stack_id_t holder_user_stack;
};

#include "offtask.bpf.h"

static __always_inline void note_wait(void *ctx, struct off_note *note)
{
	note->kernel_stack = wanted_kernel_stack(ctx);
	note->user_stack = wanted_user_stack(ctx);
	if (want_holder)
		lock_holder_read(&note->holder);
	note->holder_kernel_stack = 0;
	note->holder_user_stack = 0;
}

/* Runs in the context of the task that wakes p. */
static __always_inline int handle_waking(void *ctx, struct task_struct *p)
{
	struct off_wait *wait = off_wait_find(p);

	if (!wait || wait->since_ns <= OFF_RUNS || wait->preempted ||
	    !lock_released_to(p, &wait->note.holder))
		return 0;
	wait->note.holder_kernel_stack = wanted_kernel_stack(ctx);
	wait->note.holder_user_stack = wanted_user_stack(ctx);
	return 0;
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

SEC("tp_btf/sched_waking")
int BPF_PROG(waking__btf, struct task_struct *p)
{
	return handle_waking(ctx, p);
}

SEC("raw_tp/sched_waking")
int BPF_PROG(waking__raw, struct task_struct *p)
{
	return handle_waking(ctx, p);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
