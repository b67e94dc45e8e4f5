/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SCHED_BPF_H
#define __SCHED_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lost.bpf.h"
#include "task.bpf.h"

/* In a stamp: the task was taken off the CPU while it could run on. */
#define SCHED_PREEMPTED (1ULL << 63)

/*
 * Since when a task waits for a CPU, by its thread id: CLOCK_MONOTONIC, 0 when it
 * does not wait. User space makes room for every id that there may be.
 *
 * An array, as nothing can be allocated safely under the run queue's lock in all
 * kernels, nothing can be left behind, and it costs some 2 ns where task storage
 * takes 10 and a hash 50 and more. A task's stamp changes only under the lock of
 * its run queue, so never on two CPUs at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 22);
	__type(key, __u32);
	__type(value, __u64);
} sched_waits SEC(".maps");

/* A wait that is over. */
struct sched_wait {
	__u64 ns;
	bool preempted;
};

/* When sched_switch was first seen. */
__u64 sched_first_switch_ns;

/*
 * Whether the task has a CPU, for programs of tp_btf and of raw_tp. A kernel without SMP
 * does not say, and then every task is taken to have none.
 */
#define SCHED_HAS_ON_CPU bpf_core_field_exists(((struct task_struct *)0)->on_cpu)
#define TASK_ON_CPU(p) (SCHED_HAS_ON_CPU ? (p)->on_cpu : 0)
#define TASK_ON_CPU_READ(p) (SCHED_HAS_ON_CPU ? BPF_CORE_READ(p, on_cpu) : 0)

/*
 * A task was put on a run queue, for sched_wakeup and sched_wakeup_new. One that
 * waits already, preempted on its way to sleep, goes on waiting. One that is woken
 * before it has left its CPU (on_cpu) does not wait. With delayed dequeue (6.12,
 * 152e11f6df29) a task that sleeps may stay queued, but has no stamp until it is woken.
 */
static __always_inline void sched_wait_begin(struct task_struct *p, __u32 tid, int on_cpu)
{
	__u64 *since = bpf_map_lookup_elem(&sched_waits, &tid);

	if (on_cpu || (since && *since) || !task_wanted(p))
		return;
	if (since)
		*since = bpf_ktime_get_ns();
	else
		lost_add(map_full);
}

/*
 * A task that leaves its CPU still has a stamp: it was given the CPU by a switch that was
 * not observed. Before the first switch that was, nothing was to be observed.
 */
static __always_inline void sched_count_unobserved(__u64 since)
{
	since &= ~SCHED_PREEMPTED;
	if (SCHED_HAS_ON_CPU && sched_first_switch_ns && since > sched_first_switch_ns)
		lost_add(unobserved);
}

/*
 * prev gives the CPU to next, for sched_switch. Returns whether that ends a wait.
 * What was known of prev is overwritten, so that no stamp outlives a run, whichever
 * program was attached first. Idle tasks (tid 0) neither wait nor run.
 */
static __always_inline bool sched_wait_switch(struct task_struct *prev, __u32 prev_tid,
					      bool runnable, __u32 next_tid,
					      struct sched_wait *wait)
{
	__u64 *since = NULL, *stamp = NULL, begin = 0, now;
	bool waits = prev_tid && runnable && task_wanted(prev);

	if (prev_tid)
		stamp = bpf_map_lookup_elem(&sched_waits, &prev_tid);
	if (next_tid)
		since = bpf_map_lookup_elem(&sched_waits, &next_tid);
	if (since)
		begin = *since;
	if (stamp && *stamp) {
		sched_count_unobserved(*stamp);
		*stamp = 0;
	}
	if (!waits && !begin)
		return false;
	now = bpf_ktime_get_ns();
	if (!sched_first_switch_ns)
		sched_first_switch_ns = now;
	if (waits && stamp)
		*stamp = now | SCHED_PREEMPTED;
	else if (waits)
		lost_add(map_full);
	if (!begin)
		return false;
	*since = 0;
	wait->preempted = begin & SCHED_PREEMPTED;
	begin &= ~SCHED_PREEMPTED;
	/* Between CPUs the clock may go back by some ns while NTP adjusts it. */
	wait->ns = now > begin ? now - begin : 0;
	return true;
}

#endif
