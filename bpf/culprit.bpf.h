/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CULPRIT_BPF_H
#define __CULPRIT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "culpritlog.bpf.h"
#include "culpritwalk.bpf.h"
#include "sched.bpf.h"
#include "task.bpf.h"

/*
 * Divides each wait for a CPU (sched.bpf.h) among what used that CPU meanwhile. The parts of a wait
 * add up to the wait: what is not known is a part too.
 *
 * Each CPU has a log of the tasks that it switched to. A wait consists of legs, one per CPU that the
 * task waited for. A leg notes the position in the log at its begin; at the end of the wait the log is
 * read from there on. The log is written under the lock of the run queue. That of another CPU is read
 * without it, so a reader checks that an entry was not overwritten meanwhile.
 *
 * User space removes all functions and maps of these files from runs without want_culprit (probe.Cut).
 */

/* Defined by the tool: whether a wait of this length is divided. */
static __always_inline bool culprit_wanted(__u64 wait_ns);

static __always_inline void culprit_begin_leg(struct culprit_leg *leg, struct task_struct *p, __u32 nr,
					      __u64 now_ns)
{
	struct culprit_cpu *cpu = culprit_cpu(nr);

	leg->cpu = nr;
	leg->cfs_rq = (__u64)BPF_CORE_READ(p, se.cfs_rq);
	leg->throttled = culprit_is_throttled(p, (void *)leg->cfs_rq);
	leg->from_throttled = culprit_throttled_time((void *)leg->cfs_rq);
	if (!cpu)
		return;
	/* The first switch adds an entry for the task before it too. */
	leg->first = cpu->head ? cpu->head - 1 : 0;
	culprit_read_times(cpu, now_ns, &leg->from);
}

static __always_inline void culprit_end_leg(struct culprit_leg *leg, __u64 now_ns)
{
	struct culprit_cpu *cpu = culprit_cpu(leg->cpu);

	if (!cpu)
		return;
	leg->last = cpu->head ? cpu->head - 1 : 0;
	culprit_read_times(cpu, now_ns, &leg->to);
	leg->to_throttled = culprit_throttled_time((void *)leg->cfs_rq);
}

/* The time since which the task waits, 0 if it does not. */
static __always_inline __u64 culprit_since_ns(__u32 tid)
{
	__u64 *stamp = bpf_map_lookup_elem(&sched_waits, &tid);

	if (!tid || !stamp || *stamp <= SCHED_UNWANTED)
		return 0;
	return *stamp & SCHED_TIME;
}

/* After the begin of a wait, and when a task that waits is woken again. */
static __noinline int culprit_begin(struct task_struct *p)
{
	struct culprit_walk *walk = culprit_walk();
	__u32 tid = BPF_CORE_READ(p, pid);
	__u64 since_ns = culprit_since_ns(tid);
	struct culprit_wait *pending;

	if (!since_ns || !walk)
		return 0;
	pending = bpf_map_lookup_elem(&culprit_waits, &tid);
	if (pending && pending->legs[0].from.ns == since_ns)
		return 0;
	culprit_begin_leg(&walk->wait.legs[0], p, BPF_CORE_READ(p, se.cfs_rq, rq, cpu), since_ns);
	walk->wait.nr_legs = 1;
	walk->wait.scattered = false;
	bpf_map_update_elem(&culprit_waits, &tid, &walk->wait, BPF_ANY);
	return 0;
}

/* Before a task moves to another CPU. The time on the last of too many CPUs remains unknown. */
static __noinline int culprit_move(struct task_struct *p, __u32 nr)
{
	__u32 tid = BPF_CORE_READ(p, pid), i;
	struct culprit_wait *pending;
	__u64 now_ns;

	if (!culprit_since_ns(tid))
		return 0;
	pending = bpf_map_lookup_elem(&culprit_waits, &tid);
	if (!pending)
		return 0;
	now_ns = bpf_ktime_get_ns();
	i = pending->nr_legs - 1;
	if (i >= CULPRIT_LEGS)
		return 0;
	culprit_end_leg(culprit_leg(pending, i), now_ns);
	if (i < CULPRIT_LEGS - 1)
		pending->nr_legs = ++i + 1;
	else
		pending->scattered = true;
	culprit_begin_leg(culprit_leg(pending, i), p, nr, now_ns);
	return 0;
}

/* Counts why a part of the wait is unknown. */
static __always_inline void culprit_count(const struct culprit_walk *walk, bool is_tracked)
{
	if (!is_tracked)
		counter_add(untracked);
	else if (walk->overwritten)
		counter_add(overwritten);
	else if (walk->wait.scattered)
		counter_add(scattered);
}

/* Divides the wait of the task that has just got this CPU. */
static __always_inline void culprit_divide(struct task_struct *p, __u32 tid,
					   const struct sched_wait *wait)
{
	struct culprit_wait *pending = bpf_map_lookup_elem(&culprit_waits, &tid);
	struct culprit_walk *walk = culprit_walk();

	if (!walk)
		return;
	walk->task = (__u64)p;
	walk->serial++;
	walk->tgid = BPF_CORE_READ(p, tgid);
	walk->left_ns = wait->ns;
	walk->overwritten = false;
	if (pending && pending->nr_legs && culprit_wanted(wait->ns)) {
		culprit_end_leg(culprit_leg(pending, pending->nr_legs - 1), wait->now_ns);
		__builtin_memcpy(&walk->wait, pending, sizeof(walk->wait));
		culprit_enter_leg(walk, 0);
		for (int i = 0; i < CULPRIT_STEPS; i++) {
			if (!culprit_step(0))
				break;
		}
	}
	if (pending)
		bpf_map_delete_elem(&culprit_waits, &tid);
	if (!walk->left_ns || !culprit_wanted(wait->ns))
		return;
	culprit_part(walk, p, CULPRIT_UNKNOWN, walk->left_ns);
	culprit_count(walk, pending);
}

/* Adds an entry to the log: from now on the CPU runs the task. prev ran before, and can be NULL. */
static __always_inline void culprit_log(struct culprit_cpu *cpu, struct task_struct *p, __u64 now_ns,
					struct task_struct *prev)
{
	struct culprit_run *run = culprit_run(cpu, cpu->head);
	struct cfs_rq *cfs_rq = prev ? BPF_CORE_READ(prev, se.cfs_rq) : NULL;

	culprit_read_times(cpu, now_ns, &run->at);
	culprit_read_task(run, p);
	run->throttled = prev && culprit_is_throttled(prev, cfs_rq) ? (__u64)cfs_rq : 0;
	/* With a barrier: the entry is complete when it can be read. */
	__sync_fetch_and_add(&cpu->head, 1);
}

/*
 * No interrupt is in progress when tasks are switched: then its end was not observed. With PREEMPT_RT
 * a softirq can be preempted; its time then belongs to the task that runs it.
 */
static __always_inline void culprit_end_interrupts(struct culprit_cpu *cpu)
{
	if (cpu->hard_depth)
		lost_add(unobserved);
	cpu->hard_depth = 0;
	cpu->soft_since_ns = 0;
}

/* wait is that of next if it has ended. Its now_ns is 0 if the clock was not read. */
static __noinline int culprit_switch(struct task_struct *prev, struct task_struct *next,
				     const struct sched_wait *wait, bool ended)
{
	struct culprit_cpu *cpu = culprit_cpu(bpf_get_smp_processor_id());
	__u64 now_ns = wait->now_ns;

	if (!cpu)
		return 0;
	if (!now_ns)
		now_ns = bpf_ktime_get_ns();
	culprit_end_interrupts(cpu);
	cpu->rq = (__u64)BPF_CORE_READ(next, se.cfs_rq, rq);
	if (!cpu->head)
		culprit_log(cpu, prev, 0, NULL);
	if (ended)
		culprit_divide(next, BPF_CORE_READ(next, pid), wait);
	culprit_log(cpu, next, now_ns, prev);
	culprit_begin(prev);
	return 0;
}

static __always_inline int culprit_hard_begin(void)
{
	struct culprit_cpu *cpu = culprit_cpu(bpf_get_smp_processor_id());

	if (!cpu)
		return 0;
	if (!cpu->hard_depth)
		cpu->hard_since_ns = bpf_ktime_get_ns();
	cpu->hard_depth++;
	return 0;
}

static __always_inline int culprit_hard_end(void)
{
	struct culprit_cpu *cpu = culprit_cpu(bpf_get_smp_processor_id());

	if (!cpu || !cpu->hard_depth)
		return 0;
	if (cpu->hard_depth == 1)
		cpu->hard_ns = culprit_hard_ns(cpu, bpf_ktime_get_ns());
	cpu->hard_depth--;
	return 0;
}

static __always_inline int culprit_soft_begin(void)
{
	struct culprit_cpu *cpu = culprit_cpu(bpf_get_smp_processor_id());
	__u64 now_ns = bpf_ktime_get_ns();

	if (!cpu)
		return 0;
	cpu->soft_hard_ns = culprit_hard_ns(cpu, now_ns);
	cpu->soft_since_ns = now_ns;
	return 0;
}

static __always_inline int culprit_soft_end(void)
{
	struct culprit_cpu *cpu = culprit_cpu(bpf_get_smp_processor_id());
	struct culprit_times times;

	if (!cpu || !cpu->soft_since_ns)
		return 0;
	culprit_read_times(cpu, bpf_ktime_get_ns(), &times);
	cpu->soft_ns = times.soft_ns;
	cpu->soft_since_ns = 0;
	return 0;
}

/* Defines a tp_btf program, and a raw_tp program as its fallback. */
#define CULPRIT_HOOK(hook, part, event, call)                        \
	SEC("tp_btf/" #event)                                        \
	int hook##__btf__##part(__u64 *ctx)                          \
	{                                                            \
		return call;                                         \
	}                                                            \
	SEC("raw_tp/" #event)                                        \
	int hook##__raw__##part(__u64 *ctx)                          \
	{                                                            \
		return call;                                         \
	}

CULPRIT_HOOK(interrupt, hard_done, irq_handler_exit, culprit_hard_end())
CULPRIT_HOOK(interrupt, hard_start, irq_handler_entry, culprit_hard_begin())
CULPRIT_HOOK(interrupt, soft_done, softirq_exit, culprit_soft_end())
CULPRIT_HOOK(interrupt, soft_start, softirq_entry, culprit_soft_begin())
CULPRIT_HOOK(move, cpu, sched_migrate_task, culprit_move((void *)ctx[0], ctx[1]))

#endif
