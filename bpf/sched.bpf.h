/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SCHED_BPF_H
#define __SCHED_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lost.bpf.h"
#include "task.bpf.h"

/* In a stamp: the task was preempted. */
#define SCHED_PREEMPTED (1ULL << 63)

/*
 * The time since which a task waits for a CPU, by thread ID: CLOCK_MONOTONIC, 0 if it does not
 * wait. User space sizes the array for all possible IDs.
 *
 * This is an array, because memory cannot be allocated safely under the run queue's lock in all
 * kernels, no entries can be left behind, and an access takes about 2 ns (task storage 10 ns, a
 * hash 50 ns and more). A task's stamp changes only under the lock of its run queue, so never on
 * two CPUs at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 22);
	__type(key, __u32);
	__type(value, __u64);
} sched_waits SEC(".maps");

/* A completed wait. */
struct sched_wait {
	__u64 ns;
	bool preempted;
};

/* Time of the first observed sched_switch. */
__u64 sched_first_switch_ns;

/*
 * Whether the task is on a CPU, for tp_btf and for raw_tp programs. A kernel without SMP does not
 * have this member: then the result is 0.
 */
#define SCHED_HAS_ON_CPU bpf_core_field_exists(((struct task_struct *)0)->on_cpu)
#define TASK_ON_CPU(p) (SCHED_HAS_ON_CPU ? (p)->on_cpu : 0)
#define TASK_ON_CPU_READ(p) (SCHED_HAS_ON_CPU ? BPF_CORE_READ(p, on_cpu) : 0)

/*
 * For sched_wakeup and sched_wakeup_new, which put a task on a run queue. A task that was preempted
 * while it was about to sleep waits already, and continues to wait. A task that is woken before it
 * has left its CPU (on_cpu) does not wait. With delayed dequeue (6.12, 152e11f6df29) a sleeping
 * task can stay on the run queue, but has no stamp until it is woken.
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
 * A task that leaves its CPU still has a stamp: the switch to it was not observed. A stamp from
 * before the first observed switch is not a loss.
 */
static __always_inline void sched_count_unobserved(__u64 since)
{
	since &= ~SCHED_PREEMPTED;
	if (SCHED_HAS_ON_CPU && sched_first_switch_ns && since > sched_first_switch_ns)
		lost_add(unobserved);
}

/*
 * For sched_switch: prev gives the CPU to next. Returns whether that ends a wait. The stamp of prev
 * is overwritten in any case, so that no outdated stamp remains, in whatever order the programs
 * were attached. Idle tasks (TID 0) neither wait nor run.
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
	/* The clocks of two CPUs can differ by some ns while NTP adjusts them. */
	wait->ns = now > begin ? now - begin : 0;
	return true;
}

#endif
