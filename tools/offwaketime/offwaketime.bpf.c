// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "stackid.bpf.h"
#include "task.bpf.h"

/* The stacks of the waiting thread and its waker: all 0 without a waker. */
struct off_note {
	stack_id_t kernel_stack;
	stack_id_t user_stack;
	stack_id_t waker_kernel_stack;
	stack_id_t waker_user_stack;
	__u32 waker_pid;
	__u32 waker_tid;
	char waker[TASK_COMM_LEN];
};

#include "offtask.bpf.h"

static __always_inline void note_wait(void *ctx, struct off_note *note)
{
	__builtin_memset(note, 0, sizeof(*note));
	note->kernel_stack = wanted_kernel_stack(ctx);
	note->user_stack = wanted_user_stack(ctx);
}

/*
 * Runs in the context of the waker, on any CPU. The first waker counts. A thread that was preempted
 * while it was about to wait can be woken too, although it is not waiting.
 */
static __always_inline void handle_waking(void *ctx, struct task_struct *p)
{
	struct off_wait *wait = off_wait_find(p);
	__u64 id = bpf_get_current_pid_tgid();

	if (!wait || wait->since_ns <= OFF_RUNS || wait->preempted || wait->note.waker[0])
		return;
	wait->note.waker_kernel_stack = wanted_kernel_stack(ctx);
	wait->note.waker_user_stack = wanted_user_stack(ctx);
	wait->note.waker_pid = id >> 32;
	wait->note.waker_tid = id;
	bpf_get_current_comm(wait->note.waker, sizeof(wait->note.waker));
}

SEC("tp_btf/sched_switch")
int BPF_PROG(wait__btf__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return off_switch(ctx, prev, preempt, next);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wait__btf__waking, struct task_struct *p)
{
	handle_waking(ctx, p);
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(wait__raw__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return off_switch(ctx, prev, preempt, next);
}

SEC("raw_tp/sched_waking")
int BPF_PROG(wait__raw__waking, struct task_struct *p)
{
	handle_waking(ctx, p);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
