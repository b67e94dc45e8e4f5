/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CULPRITWALK_BPF_H
#define __CULPRITWALK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "culpritlog.bpf.h"
#include "sched.bpf.h"
#include "task.bpf.h"

/* Divides a wait for culprit.bpf.h: walks through the logs of the CPUs that the task waited for. */

/* A wait while it is divided. */
struct culprit_walk {
	struct culprit_wait wait;
	struct culprit_run run; /* the current entry of the log */
	struct culprit_times at; /* divided until here */
	__u64 next; /* entry of the log */
	__u64 task; /* that waited */
	__u64 left_ns; /* not divided yet */
	__u64 throttled_from_ns; /* a limit stopped the task in this part of the leg */
	__u64 throttled_to_ns;
	__u32 throttlings; /* of its cfs_rq in this leg */
	__u32 scanning; /* searches for these first */
	__u32 tgid;
	__u32 serial; /* of the wait, on this CPU */
	__u32 leg;
	bool skipped; /* the begin of this leg, which is no longer in the log */
	bool overwritten; /* a part of the log is no longer there */
	__u8 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct culprit_walk);
} culprit_walks SEC(".maps");

/*
 * Defined by the tool: this part of a wait of the task belongs to the kind, and to walk->run if that
 * is a task. ns is not 0.
 */
static __always_inline void culprit_part(struct culprit_walk *walk, struct task_struct *waiter,
					 enum culprit_kind kind, __u64 ns);

static __always_inline struct culprit_walk *culprit_walk(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&culprit_walks, &zero);
}

/*
 * Takes a difference from what is left, at most all of it, so that the parts add up even if counters were
 * read at different times.
 */
static __always_inline __u64 culprit_take(__u64 from_ns, __u64 to_ns, __u64 *left_ns)
{
	__u64 ns = (__s64)(to_ns - from_ns) > 0 ? to_ns - from_ns : 0;

	if (ns > *left_ns)
		ns = *left_ns;
	*left_ns -= ns;
	return ns;
}

/* Divides the time from walk->at to this time: walk->run ran. */
static __always_inline void culprit_divide_run(struct culprit_walk *walk,
					       const struct culprit_times *to)
{
	struct task_struct *waiter = (void *)walk->task;
	__u64 left_ns = walk->left_ns, ns, hard_ns, soft_ns, steal_ns, throttled_ns;

	ns = culprit_take(walk->at.ns, to->ns, &left_ns);
	walk->left_ns = left_ns;
	throttled_ns = culprit_take(walk->at.ns > walk->throttled_from_ns ? walk->at.ns : walk->throttled_from_ns,
				    to->ns < walk->throttled_to_ns ? to->ns : walk->throttled_to_ns, &ns);
	if (throttled_ns)
		culprit_part(walk, waiter, CULPRIT_THROTTLED, throttled_ns);
	if (!ns)
		return;
	hard_ns = culprit_take(walk->at.hard_ns, to->hard_ns, &ns);
	soft_ns = culprit_take(walk->at.soft_ns, to->soft_ns, &ns);
	steal_ns = culprit_take(walk->at.steal_ns, to->steal_ns, &ns);
	if (hard_ns)
		culprit_part(walk, waiter, CULPRIT_HARDIRQ, hard_ns);
	if (soft_ns)
		culprit_part(walk, waiter, CULPRIT_SOFTIRQ, soft_ns);
	if (steal_ns)
		culprit_part(walk, waiter, CULPRIT_STEAL, steal_ns);
	if (!ns)
		return;
	if (!walk->run.tid)
		culprit_part(walk, waiter, CULPRIT_IDLE, ns);
	else if (walk->run.pid == walk->tgid)
		culprit_part(walk, waiter, CULPRIT_THREAD, ns);
	else
		culprit_part(walk, waiter, CULPRIT_TASK, ns);
}

/* The time in which a limit stopped the task in this leg. */
static __always_inline __u64 culprit_throttled_ns(const struct culprit_leg *leg)
{
	__u64 length_ns = leg->to.ns - leg->from.ns;

	if (CULPRIT_TASKS_THROTTLE && !leg->throttled)
		return 0;
	return culprit_take(leg->from_throttled, leg->to_throttled, &length_ns);
}

/* Whether the kernel does not count how long a limit stopped the task in this leg. */
static __always_inline bool culprit_is_unknown(const struct culprit_leg *leg)
{
	if (CULPRIT_HAS(throttled_clock_self_time) || CULPRIT_HAS(throttled_clock_task_time))
		return false;
	return leg->throttled || leg->from_throttled != leg->to_throttled;
}

/* Begins to divide a leg. */
static __always_inline void culprit_enter_leg(struct culprit_walk *walk, __u32 i)
{
	struct culprit_leg *leg = culprit_leg(&walk->wait, i);

	walk->leg = i;
	walk->skipped = false;
	walk->next = culprit_is_unknown(leg) ? leg->last + 1 : leg->first;
	__builtin_memcpy(&walk->at, &leg->from, sizeof(walk->at));
	walk->throttlings = leg->throttled;
	walk->throttled_from_ns = leg->from.ns;
	walk->throttled_to_ns = 0;
	walk->scanning = !culprit_is_unknown(leg) && culprit_throttled_ns(leg);
}

static __always_inline int culprit_leave_leg(struct culprit_walk *walk)
{
	if (walk->leg + 1 >= walk->wait.nr_legs)
		return 0;
	culprit_enter_leg(walk, walk->leg + 1);
	return 1;
}

/* Counts what the log contains of the begin of throttling. */
static __always_inline void culprit_scan(struct culprit_walk *walk, const struct culprit_leg *leg)
{
	if (walk->next == leg->first || !walk->run.throttled || walk->run.throttled != leg->cfs_rq)
		return;
	walk->throttled_from_ns = walk->run.at.ns;
	walk->throttlings++;
}

/*
 * After the scan. If the whole log was read, and the task was stopped once, from the begin of the leg or
 * from a switch on, it is known when. Otherwise only the sum is, and what else used the CPU remains
 * unknown.
 */
static __always_inline int culprit_end_scan(struct culprit_walk *walk, struct culprit_leg *leg)
{
	__u64 left_ns = walk->left_ns, ns = culprit_throttled_ns(leg);

	walk->scanning = false;
	if (walk->throttlings == 1 && walk->next > leg->last) {
		walk->throttled_to_ns = walk->throttled_from_ns + ns;
		walk->next = leg->first;
		return 1;
	}
	ns = culprit_take(0, ns, &left_ns);
	walk->left_ns = left_ns;
	if (ns)
		culprit_part(walk, (void *)walk->task, CULPRIT_THROTTLED, ns);
	return culprit_leave_leg(walk);
}

/*
 * The next entry of the log was overwritten. Continues with the oldest one that remains: the time until
 * then is unknown. Another CPU can overwrite that one too, if it is not read soon enough.
 */
static __always_inline int culprit_skip(struct culprit_walk *walk, struct culprit_leg *leg, __u64 head)
{
	__u64 oldest = head - (CULPRIT_RUNS - 2 * CULPRIT_MARGIN);

	walk->overwritten = true;
	if (walk->scanning)
		return culprit_end_scan(walk, leg);
	if (walk->skipped || oldest > leg->last)
		return culprit_leave_leg(walk);
	walk->skipped = true;
	walk->next = oldest;
	return 1;
}

/*
 * Divides the part of the leg that belongs to the next entry of the log. Returns whether there is more.
 * It is a global function, so that the verifier checks it once and not for each entry.
 */
__noinline int culprit_step(__u32 unused)
{
	struct culprit_walk *walk = culprit_walk();
	struct culprit_times to;
	struct culprit_leg *leg;
	struct culprit_cpu *cpu;
	__u64 nr, head;

	if (!walk)
		return 0;
	leg = culprit_leg(&walk->wait, walk->leg);
	cpu = culprit_cpu(leg->cpu);
	nr = walk->next;
	if (walk->scanning && nr > leg->last)
		return culprit_end_scan(walk, leg);
	if (!cpu || nr > leg->last)
		return culprit_leave_leg(walk);
	__builtin_memcpy(&walk->run, culprit_run(cpu, nr), sizeof(walk->run));
	if (nr < leg->last)
		__builtin_memcpy(&to, &culprit_run(cpu, nr + 1)->at, sizeof(to));
	else
		__builtin_memcpy(&to, &leg->to, sizeof(to));
	/* Overwritten, perhaps meanwhile. */
	barrier();
	head = cpu->head;
	if (head - nr > CULPRIT_RUNS - CULPRIT_MARGIN)
		return culprit_skip(walk, leg, head);
	if (walk->scanning) {
		culprit_scan(walk, leg);
	} else {
		if (nr > leg->first)
			__builtin_memcpy(&walk->at, &walk->run.at, sizeof(walk->at));
		culprit_divide_run(walk, &to);
	}
	walk->next = nr + 1;
	return 1;
}

#endif
