/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CULPRITLOG_BPF_H
#define __CULPRITLOG_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "sched.bpf.h"
#include "task.bpf.h"

/*
 * The log of a CPU for culprit.bpf.h: which tasks it ran, and what it did besides.
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

/* Not known yet: later than any time, so that no difference is positive. */
#define CULPRIT_NO_STEAL (~0ULL >> 1)

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

#endif
