/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CULPRIT_BPF_H
#define __CULPRIT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
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
 * User space removes all functions and maps of this file from runs without want_culprit (probe.Cut).
 */

/* Name tasks by their thread-group leader. */
const volatile bool culprit_processes = false;

/* Entries in the log of a CPU: a longer wait is in part unknown. A power of two. */
#define CULPRIT_RUNS 1024
/* Entries that are read of all logs for a wait. */
#define CULPRIT_STEPS (2 * CULPRIT_RUNS)
/* Entries that a writer may overwrite while they are read. */
#define CULPRIT_MARGIN 8
/* CPUs that a task waits for in one wait; the time on others is unknown. A power of two. */
#define CULPRIT_LEGS 4
enum culprit_kind {
	CULPRIT_TASK = 1, /* of another process */
	CULPRIT_THREAD, /* of the process that waits */
	CULPRIT_HARDIRQ,
	CULPRIT_SOFTIRQ,
	CULPRIT_STEAL,
	CULPRIT_THROTTLED,
	CULPRIT_IDLE,
	CULPRIT_UNKNOWN,
};

/* Waits of which a part is unknown, by reason. */
struct counters {
	__u64 overwritten; /* a CPU switched more often than its log has entries */
	__u64 scattered; /* the task waited for more than CULPRIT_LEGS CPUs */
	__u64 untracked; /* culprit_waits was full */
};

#include "counters.bpf.h"

/* Cumulative times of a CPU. */
struct culprit_times {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u64 hard_ns;
	__u64 soft_ns;
	__u64 steal_ns;
};

/* A CPU runs this task from at.ns on, until the next entry. */
struct culprit_run {
	struct culprit_times at;
	__u64 cgroup_id;
	__u64 throttled; /* cfs_rq of the task before it, if that was stopped by a limit */
	__u32 pid;
	__u32 tid;
	char comm[TASK_COMM_LEN];
};

struct culprit_cpu {
	__u64 head; /* number of entries written */
	__u64 rq;
	/* Written by programs in interrupts only. */
	__u64 hard_ns; /* time in handlers that have ended */
	__u64 hard_since_ns; /* the outermost handler runs since */
	__u32 hard_depth;
	__u32 pad;
	/* Written by programs in softirqs only. */
	__u64 soft_ns;
	__u64 soft_since_ns; /* 0 if none runs */
	__u64 soft_hard_ns; /* time in handlers at that time */
	struct culprit_run runs[CULPRIT_RUNS];
};

/* User space sets the number of CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct culprit_cpu);
} culprit_cpus SEC(".maps");

/* The part of a wait in which a task was on the run queue of one CPU. */
struct culprit_leg {
	struct culprit_times from;
	struct culprit_times to; /* not of the last leg */
	__u64 first; /* entry of the log that from.ns belongs to */
	__u64 last; /* the same for to.ns */
	__u64 cfs_rq; /* of the task */
	__u64 from_throttled; /* culprit_throttled_time() at the begin and the end */
	__u64 to_throttled;
	__u32 cpu;
	__u32 throttled; /* a limit stops the task at its begin */
};

struct culprit_wait {
	struct culprit_leg legs[CULPRIT_LEGS];
	__u32 nr_legs;
	__u32 scattered; /* the time on some CPUs is unknown */
};

/* The waits in progress, by thread ID. Allocated in advance: entries are added under a run queue's lock. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, struct culprit_wait);
} culprit_waits SEC(".maps");

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

/* Not known yet: later than any time, so that no difference is positive. */
#define CULPRIT_NO_STEAL (~0ULL >> 1)

/* Defined by the tool: whether a wait of this length is divided. */
static __always_inline bool culprit_wanted(__u64 wait_ns);

struct rq___steal {
	__u64 prev_steal_time;
	__u64 prev_steal_time_rq;
} __attribute__((preserve_access_index));

/* Without CONFIG_PARAVIRT, and with CONFIG_PARAVIRT_TIME_ACCOUNTING at each update of the clock. */
static __always_inline __u64 culprit_steal_ns(struct rq___steal *rq)
{
	__u64 tick_ns = 0, clock_ns = 0;

	if (bpf_core_field_exists(rq->prev_steal_time))
		tick_ns = BPF_CORE_READ(rq, prev_steal_time);
	if (bpf_core_field_exists(rq->prev_steal_time_rq))
		clock_ns = BPF_CORE_READ(rq, prev_steal_time_rq);
	return clock_ns > tick_ns ? clock_ns : tick_ns;
}

/* From 6.18 on tasks are throttled when they return to user space, one by one (e1fad12dcb66). */
struct task_struct___throttle {
	bool throttled;
} __attribute__((preserve_access_index));

#define CULPRIT_TASKS_THROTTLE bpf_core_field_exists(((struct task_struct___throttle *)0)->throttled)

/*
 * What a kernel counts of the time in which a run queue of a group is stopped by a limit (cpu.max) of
 * that group or of one above:
 *
 * - until 5.18 throttled_clock_task_time, of the clock without interrupts and steal;
 * - from 5.19 on (64eaf50731ac) only the time of the clock for load averages, which is another one;
 * - from 6.6 on (677ea015f231) throttled_clock_self_time.
 */
struct cfs_rq___limit {
	int throttle_count;
	__u64 throttled_clock_task;
	__u64 throttled_clock_task_time;
	__u64 throttled_clock_pelt_time;
	__u64 throttled_clock_self;
	__u64 throttled_clock_self_time;
} __attribute__((preserve_access_index));

#define CULPRIT_HAS(member) bpf_core_field_exists(((struct cfs_rq___limit *)0)->member)

/* The throttled time of a run queue so far. In 5.19 to 6.5 any number that changes when one ends. */
static __always_inline __u64 culprit_throttled_time(void *of)
{
	struct rq *rq = BPF_CORE_READ((struct cfs_rq *)of, rq);
	struct cfs_rq___limit *cfs_rq = of;
	__u64 since, now;

	if (CULPRIT_HAS(throttled_clock_self_time)) {
		since = BPF_CORE_READ(cfs_rq, throttled_clock_self);
		now = BPF_CORE_READ(rq, clock);
		return BPF_CORE_READ(cfs_rq, throttled_clock_self_time) + (since && now > since ? now - since : 0);
	}
	if (CULPRIT_HAS(throttled_clock_task_time)) {
		since = BPF_CORE_READ(cfs_rq, throttle_count) ? BPF_CORE_READ(cfs_rq, throttled_clock_task) : 0;
		now = BPF_CORE_READ(rq, clock_task);
		return BPF_CORE_READ(cfs_rq, throttled_clock_task_time) + (since && now > since ? now - since : 0);
	}
	if (CULPRIT_HAS(throttled_clock_pelt_time))
		return BPF_CORE_READ(cfs_rq, throttled_clock_pelt_time);
	return 0;
}

/* Whether a limit stops the task, which is not running. */
static __always_inline bool culprit_is_throttled(struct task_struct *p, void *of)
{
	struct task_struct___throttle *task = (void *)p;
	struct cfs_rq___limit *cfs_rq = of;

	if (CULPRIT_TASKS_THROTTLE)
		return BPF_CORE_READ(task, throttled);
	return CULPRIT_HAS(throttle_count) && BPF_CORE_READ(cfs_rq, throttle_count) > 0;
}

static __always_inline struct culprit_cpu *culprit_cpu(__u32 cpu)
{
	return bpf_map_lookup_elem(&culprit_cpus, &cpu);
}

/* The entry with this number. The mask tells the verifier that the index is in the array. */
static __always_inline struct culprit_run *culprit_run(struct culprit_cpu *cpu, __u64 nr)
{
	barrier_var(nr);
	return &cpu->runs[nr & (CULPRIT_RUNS - 1)];
}

static __always_inline struct culprit_leg *culprit_leg(struct culprit_wait *wait, __u32 i)
{
	barrier_var(i);
	return &wait->legs[i & (CULPRIT_LEGS - 1)];
}

static __always_inline __u64 culprit_hard_ns(struct culprit_cpu *cpu, __u64 now_ns)
{
	__u64 since_ns = cpu->hard_since_ns, ns = cpu->hard_ns;

	return cpu->hard_depth && now_ns > since_ns ? ns + now_ns - since_ns : ns;
}

static __always_inline void culprit_read_times(struct culprit_cpu *cpu, __u64 now_ns,
					       struct culprit_times *times)
{
	__u64 since_ns = cpu->soft_since_ns, ns, hard_ns;

	times->ns = now_ns;
	times->hard_ns = culprit_hard_ns(cpu, now_ns);
	times->soft_ns = cpu->soft_ns;
	times->steal_ns = cpu->rq ? culprit_steal_ns((void *)cpu->rq) : CULPRIT_NO_STEAL;
	if (!since_ns || now_ns <= since_ns)
		return;
	ns = now_ns - since_ns;
	hard_ns = times->hard_ns - cpu->soft_hard_ns;
	if (ns > hard_ns)
		times->soft_ns += ns - hard_ns;
}

static __always_inline void culprit_read_task(struct culprit_run *run, struct task_struct *p)
{
	run->tid = BPF_CORE_READ(p, pid);
	run->pid = BPF_CORE_READ(p, tgid);
	run->cgroup_id = task_cgroup_id(p);
	__builtin_memset(run->comm, 0, sizeof(run->comm));
	if (culprit_processes)
		BPF_CORE_READ_STR_INTO(&run->comm, p, group_leader, comm);
	else
		BPF_CORE_READ_STR_INTO(&run->comm, p, comm);
}

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
