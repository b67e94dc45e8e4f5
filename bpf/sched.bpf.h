/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SCHED_BPF_H
#define __SCHED_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "compat.bpf.h"
#include "draw.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"
#include "task.bpf.h"

/* Divide waits among what used the CPU meanwhile (culprit.bpf.h). */
const volatile bool want_culprit = false;

/*
 * In a stamp: the task was preempted, and the exponent of the weight of the wait (draw.bpf.h). The
 * time has the bits below, which are enough for 36 years.
 */
#define SCHED_PREEMPTED (1ULL << 63)
#define SCHED_SHIFT_BIT 60
#define SCHED_TIME ((1ULL << SCHED_SHIFT_BIT) - 1)

/*
 * Stamps that are not times. A task without a stamp (0) has not been observed since all programs
 * are attached.
 */
enum sched_stamp {
	SCHED_RUNS = 1, /* on a CPU: the switch to it was observed */
	SCHED_SLEEPS, /* off its CPU, and not on a run queue */
	SCHED_UNWANTED, /* waits, and the filter or the draw does not select it */
};

/*
 * The time since which a task waits for a CPU, by thread ID: CLOCK_MONOTONIC, or an enum
 * sched_stamp. User space sizes the array for all possible IDs.
 *
 * This is an array, because memory cannot be allocated safely under the run queue's lock in all
 * kernels, no entries can be left behind, and an access takes about 2 ns (task storage 10 ns, a
 * hash 50 ns and more). A task's stamp changes only under the lock of its run queue, so never on
 * two CPUs at once; at the start also in sched_note_task().
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
	__u64 now_ns; /* its end (CLOCK_MONOTONIC), with want_culprit; set for other switches too if it was read */
	__u32 shift; /* exponent of the weight */
	bool preempted;
};

/*
 * A time at which all programs were attached, CLOCK_MONOTONIC; 0 before. What began earlier is not
 * missed.
 */
__u64 sched_begun_ns;

/*
 * Whether the task is on a CPU, for tp_btf and for raw_tp programs. A kernel without SMP does not
 * have this member: then the result is 0.
 */
#define SCHED_HAS_ON_CPU bpf_core_field_exists(((struct task_struct *)0)->on_cpu)
#define TASK_ON_CPU(p) (SCHED_HAS_ON_CPU ? (p)->on_cpu : 0)
#define TASK_ON_CPU_READ(p) (SCHED_HAS_ON_CPU ? BPF_CORE_READ(p, on_cpu) : 0)

static __always_inline bool sched_is_waiting(__u64 stamp)
{
	return stamp >= SCHED_UNWANTED;
}

/* The exponent of the weight of a wait; 0 of stamps that are not times. */
static __always_inline __u32 sched_shift(__u64 stamp)
{
	return stamp >> SCHED_SHIFT_BIT & DRAW_MAX_SHIFT;
}

/* Decides whether a wait that begins is counted. bits are those of its weight in the stamp. */
static __always_inline bool sched_draw(__u64 *bits)
{
	__u32 shift;

	if (!draw_event(&shift))
		return false;
	*bits = (__u64)shift << SCHED_SHIFT_BIT;
	return true;
}

/*
 * For each task, once all programs are attached. From here on, a task that runs or sleeps cannot
 * wait for a CPU unless a program observes the start. A task that is on a run queue may have been
 * there before. A stamp that a program has set is newer; in the rare case that it is set at the same
 * time, a wait is lost and counted.
 *
 * Without SMP no task is known to run, and nothing is counted as unobserved.
 */
static __always_inline void sched_note_task(struct task_struct *p)
{
	__u32 tid = BPF_CORE_READ(p, pid);
	__u64 *stamp = bpf_map_lookup_elem(&sched_waits, &tid);
	__u64 seen = 0;

	if (!SCHED_HAS_ON_CPU)
		return;
	if (!sched_begun_ns)
		sched_begun_ns = bpf_ktime_get_ns();
	if (!tid || !stamp || *stamp)
		return;
	if (TASK_ON_CPU_READ(p))
		seen = SCHED_RUNS;
	else if (task_state(p) && !BPF_CORE_READ(p, on_rq))
		seen = SCHED_SLEEPS;
	if (seen && !*stamp)
		*stamp = seen;
}

/*
 * For sched_wakeup and sched_wakeup_new, which put a task on a run queue. A task that was preempted
 * while it was about to sleep waits already, and continues to wait. A task that is woken before it
 * has left its CPU (on_cpu) does not wait. With delayed dequeue (6.12, 152e11f6df29) a sleeping
 * task can stay on the run queue, but does not wait until it is woken.
 */
static __always_inline void sched_wait_begin(struct task_struct *p, __u32 tid, int on_cpu)
{
	__u64 *since = bpf_map_lookup_elem(&sched_waits, &tid);
	__u64 bits = 0;

	if (on_cpu || (since && sched_is_waiting(*since)))
		return;
	if (!task_wanted(p)) {
		if (since)
			*since = SCHED_UNWANTED;
		return;
	}
	if (!since)
		lost_add(map_full);
	else if (want_draw && !sched_draw(&bits))
		*since = SCHED_UNWANTED;
	else
		*since = bpf_ktime_get_ns() | bits;
}

/*
 * Whether a task that leaves its CPU had to wait for it, and the switch to it was not observed:
 * either it has a stamp, or it slept, and its wake-up was not observed either.
 */
static __always_inline bool sched_missed_switch(struct task_struct *prev, __u64 stamp)
{
	if (!sched_begun_ns || !observing || stamp == SCHED_UNWANTED)
		return false;
	if (sched_is_waiting(stamp))
		return (stamp & SCHED_TIME) > sched_begun_ns;
	return stamp == SCHED_SLEEPS && task_wanted(prev);
}

/*
 * Whether a task without a time gets a CPU although it had to wait for it, and the start of the wait
 * was not observed: its wake-up, its creation, or that it left its CPU.
 */
static __always_inline bool sched_missed_start(struct task_struct *next, __u64 stamp)
{
	if (!sched_begun_ns || !observing || sched_is_waiting(stamp))
		return false;
	if (!stamp && BPF_CORE_READ(next, start_time) < sched_begun_ns)
		return false;
	return task_wanted(next);
}

/*
 * prev leaves its CPU, and waits for one again if it is runnable. Its stamp is overwritten in any
 * case, so that no outdated stamp remains, in whatever order the programs were attached. Returns the
 * time if a wait begins, otherwise 0.
 */
static __always_inline __u64 sched_leave(struct task_struct *prev, __u32 tid, bool runnable)
{
	__u64 *stamp = bpf_map_lookup_elem(&sched_waits, &tid);
	__u64 before, now, bits = 0;

	if (!stamp) {
		if (runnable && task_wanted(prev))
			lost_add(map_full);
		return 0;
	}
	before = *stamp;
	if (before != SCHED_RUNS && sched_missed_switch(prev, before))
		lost_add_n(unobserved, draw_weight(sched_shift(before)));
	if (!runnable) {
		*stamp = sched_begun_ns ? SCHED_SLEEPS : 0;
		return 0;
	}
	if (!task_wanted(prev) || (want_draw && !sched_draw(&bits))) {
		*stamp = SCHED_UNWANTED;
		return 0;
	}
	now = bpf_ktime_get_ns();
	*stamp = now | SCHED_PREEMPTED | bits;
	return now;
}

/* next gets a CPU. Returns its stamp if that ends a wait, otherwise 0. */
static __always_inline __u64 sched_enter(struct task_struct *next, __u32 tid)
{
	__u64 *stamp = bpf_map_lookup_elem(&sched_waits, &tid);
	__u64 begin;

	if (!stamp)
		return 0;
	begin = *stamp;
	*stamp = sched_begun_ns ? SCHED_RUNS : 0;
	if (begin > SCHED_UNWANTED)
		return begin;
	if (sched_missed_start(next, begin))
		lost_add(unobserved);
	return 0;
}

/*
 * For sched_switch: prev gives the CPU to next. Returns whether that ends a wait of next. Idle tasks
 * (TID 0) neither wait nor run.
 */
static __always_inline bool sched_wait_switch(struct task_struct *prev, __u32 prev_tid,
					      bool runnable, struct task_struct *next,
					      __u32 next_tid, struct sched_wait *wait)
{
	__u64 now = 0, begin = 0;

	if (prev_tid)
		now = sched_leave(prev, prev_tid, runnable);
	if (next_tid)
		begin = sched_enter(next, next_tid);
	if (begin && !now)
		now = bpf_ktime_get_ns();
	if (want_culprit)
		wait->now_ns = now;
	if (!begin)
		return false;
	wait->preempted = begin & SCHED_PREEMPTED;
	wait->shift = sched_shift(begin);
	begin &= SCHED_TIME;
	/* The clocks of two CPUs can differ by some ns while NTP adjusts them. */
	wait->ns = now > begin ? now - begin : 0;
	return true;
}

#endif
