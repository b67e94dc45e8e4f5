/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SCHEDWAIT_BPF_H
#define __SCHEDWAIT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "culprit.bpf.h"
#include "sched.bpf.h"

/* The programs of tools that measure run queue latency (sched.bpf.h). */

/* Defined by the tool: next gets the CPU of prev, which ends a wait of next. */
static __always_inline void sched_wait_ended(void *ctx, struct task_struct *prev,
					     struct task_struct *next,
					     const struct sched_wait *wait);

static __always_inline int handle_switch(void *ctx, struct task_struct *prev, __u32 prev_tid,
					 bool runnable, struct task_struct *next, __u32 next_tid)
{
	struct sched_wait wait;
	bool ended = sched_wait_switch(prev, prev_tid, runnable, next, next_tid, &wait);

	if (want_culprit)
		culprit_switch(prev, next, &wait, ended);
	if (ended)
		sched_wait_ended(ctx, prev, next, &wait);
	return 0;
}

static __always_inline int handle_wakeup(struct task_struct *p, __u32 tid, int on_cpu)
{
	sched_wait_begin(p, tid, on_cpu);
	if (want_culprit)
		culprit_begin(p);
	return 0;
}

/* Runs once, when all programs are attached (Plan.Begin). */
SEC("iter/task")
int sched_begin(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (p)
		sched_note_task(p);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(queue__btf__wakeup, struct task_struct *p)
{
	return handle_wakeup(p, p->pid, TASK_ON_CPU(p));
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(queue__btf__wakeup_new, struct task_struct *p)
{
	return handle_wakeup(p, p->pid, TASK_ON_CPU(p));
}

/*
 * preempt reports that prev was preempted, whatever its state: it may have been about to sleep, but
 * stays on the run queue. The arguments after next (5.18) are not read.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(queue__btf__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool runnable = preempt || !TASK_STATE(prev);

	return handle_switch(ctx, prev, prev->pid, runnable, next, next->pid);
}

SEC("raw_tp/sched_wakeup")
int BPF_PROG(queue__raw__wakeup, struct task_struct *p)
{
	return handle_wakeup(p, BPF_CORE_READ(p, pid), TASK_ON_CPU_READ(p));
}

SEC("raw_tp/sched_wakeup_new")
int BPF_PROG(queue__raw__wakeup_new, struct task_struct *p)
{
	return handle_wakeup(p, BPF_CORE_READ(p, pid), TASK_ON_CPU_READ(p));
}

SEC("raw_tp/sched_switch")
int BPF_PROG(queue__raw__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool runnable = preempt || !task_state(prev);

	return handle_switch(ctx, prev, BPF_CORE_READ(prev, pid), runnable, next,
			     BPF_CORE_READ(next, pid));
}

#endif
