/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __OFFCPU_BPF_H
#define __OFFCPU_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"
#include "stacks.bpf.h"
#include "task.bpf.h"

/*
 * The time that threads spend off the CPU, from sched_switch to sched_switch. The tool defines
 * struct off_note, the data stored per wait, before it includes this header.
 *
 * At a switch one wait begins and another one ends, both at the time when the program starts; the
 * kernel's accounting of CPU time also uses a single time for both. So the run time of the program,
 * for example for unwinding a stack, is part of the wait that begins.
 */

#define TASK_DEAD_STATE 0x80

/* Only waits of at least and at most this length. */
const volatile __u64 min_block_ns = 1000;
const volatile __u64 max_block_ns = ~0ULL;
const volatile bool user_threads_only = false;
const volatile bool kernel_threads_only = false;
/*
 * Only waits that begin in one of these task states (a bit mask); 0: in no state, and -1: in any.
 */
const volatile __s64 targ_state = -1;

/* Instead of a time: the switch of a CPU to the thread was the last one observed. */
#define OFF_RUNS 1

struct off_wait {
	__u64 since_ns; /* CLOCK_MONOTONIC, OFF_RUNS, or 0 if a wait that is not wanted began */
	__u64 preempted; /* the thread was runnable: no wake-up ends the wait */
	struct off_note note;
};

/*
 * Keyed by thread. An entry exists from the first switch until the thread ends. Entries are allocated
 * on demand, except in kernels where that is not safe, as for hists (hist.bpf.h).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, __u32);
	__type(value, struct off_wait);
} off_waits SEC(".maps") USER_SPACE;

const struct off_wait off_wait_zero = {};

static __always_inline bool off_thread_wanted(struct task_struct *task)
{
	bool is_kernel = BPF_CORE_READ(task, flags) & PF_KTHREAD;

	if ((user_threads_only && is_kernel) || (kernel_threads_only && !is_kernel))
		return false;
	return task_wanted(task);
}

static __always_inline bool off_wanted(struct task_struct *task, __s64 state)
{
	if (targ_state >= 0 && (targ_state ? !(state & targ_state) : state != 0))
		return false;
	return off_thread_wanted(task);
}

static __always_inline struct off_wait *off_wait_add(__u32 tid)
{
	bpf_map_update_elem(&off_waits, &tid, &off_wait_zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&off_waits, &tid);
}

/*
 * off_begin returns the entry for a wait that begins: prev, still the current task, leaves the CPU.
 * It returns NULL if the wait is not wanted. preempt reports that prev was preempted: it is
 * runnable, whatever its state.
 */
static __always_inline struct off_wait *off_begin(struct task_struct *prev, bool preempt)
{
	__u32 tid = BPF_CORE_READ(prev, pid);
	__s64 state = task_state(prev);
	struct off_wait *wait;

	if (!tid)
		return NULL;
	if (state & TASK_DEAD_STATE) {
		bpf_map_delete_elem(&off_waits, &tid);
		return NULL;
	}
	wait = bpf_map_lookup_elem(&off_waits, &tid);
	/* The switch that ended the previous wait was not observed. */
	if (wait && wait->since_ns > OFF_RUNS)
		lost_add(unobserved);
	if (!off_wanted(prev, preempt ? 0 : state)) {
		if (wait)
			wait->since_ns = 0;
		return NULL;
	}
	if (!wait)
		wait = off_wait_add(tid);
	if (!wait)
		lost_add(map_full);
	return wait;
}

static __always_inline bool off_length_wanted(__u64 ns)
{
	return ns >= min_block_ns && ns <= max_block_ns;
}

/* off_end ends a wait and returns its length, 0 if it is not to be counted. */
static __always_inline __u64 off_end(struct off_wait *wait, __u64 now_ns)
{
	__u64 since_ns = wait->since_ns;

	wait->since_ns = OFF_RUNS;
	if (since_ns <= OFF_RUNS || now_ns <= since_ns || !off_length_wanted(now_ns - since_ns))
		return 0;
	return now_ns - since_ns;
}

static __always_inline struct off_wait *off_wait_find(struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);

	return tid ? bpf_map_lookup_elem(&off_waits, &tid) : NULL;
}

/* The entry of a thread that gets a CPU; a new one if the thread is wanted. */
static __always_inline struct off_wait *off_wait_next(struct task_struct *next)
{
	struct off_wait *wait = off_wait_find(next);
	__u32 tid = BPF_CORE_READ(next, pid);

	return wait || !tid || !off_thread_wanted(next) ? wait : off_wait_add(tid);
}

#endif
