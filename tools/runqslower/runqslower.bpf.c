// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.bpf.h"
#include "schedwait.bpf.h"
#include "task.bpf.h"

/* Only waits of at least this length. */
const volatile __u64 targ_min_ns = 10000000;

struct event {
	struct task_info task; /* that waited */
	__u64 latency_ns;
	__u32 cpu; /* that the task runs on after the wait */
	__u32 prev_pid; /* the task that used this CPU until then */
	__u32 prev_tid;
	__u32 preempted;
	char prev_comm[TASK_COMM_LEN];
};

/* What used the CPU for the largest part of a wait. Follows struct event with want_culprit. */
struct culprit {
	__u64 ns;
	__u64 cgroup_id;
	__u32 pid; /* as tid, 0 if it is not a task */
	__u32 tid;
	__u32 kind; /* enum culprit_kind */
	__u32 serial; /* of the wait, on this CPU */
	char comm[TASK_COMM_LEN];
};

/* Keeps the types in the BTF of the object, for comparison with the Go types. */
const struct event *event_type __attribute__((unused));
const struct culprit *culprit_type __attribute__((unused));
const enum culprit_kind *kind_type __attribute__((unused));

/* A power of two. */
#define SHARES_MAX 64
#define SHARES_TRIED 8

/*
 * The parts of a wait, by culprit. A part whose first place and those after it are taken adds to
 * others: then the largest part can be unknown.
 */
struct shares {
	struct culprit all[SHARES_MAX];
	__u64 others_ns;
	__u32 others_serial;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shares);
} shares SEC(".maps");

static __always_inline struct culprit *share_at(struct shares *s, __u32 i)
{
	barrier_var(i);
	return &s->all[i & (SHARES_MAX - 1)];
}

static __always_inline void read_share(struct culprit *c, const struct culprit_walk *walk, __u32 kind, __u32 tid)
{
	c->serial = walk->serial;
	c->ns = 0;
	c->kind = kind;
	c->tid = tid;
	c->pid = tid ? walk->run.pid : 0;
	c->cgroup_id = tid ? walk->run.cgroup_id : 0;
	__builtin_memcpy(c->comm, walk->run.comm, sizeof(c->comm));
}

static __noinline int add_share(struct culprit_walk *walk, __u32 kind, __u64 ns)
{
	__u32 tid = kind == CULPRIT_TASK || kind == CULPRIT_THREAD ? walk->run.tid : 0, zero = 0;
	__u32 first = tid * 2654435769U >> 20 ^ kind;
	struct shares *s = bpf_map_lookup_elem(&shares, &zero);

	if (!s)
		return 0;
	for (__u32 i = 0; i < SHARES_TRIED; i++) {
		struct culprit *c = share_at(s, first + i);

		if (c->serial != walk->serial)
			read_share(c, walk, kind, tid);
		else if (c->tid != tid || c->kind != kind)
			continue;
		c->ns += ns;
		return 0;
	}
	if (s->others_serial != walk->serial)
		s->others_ns = 0;
	s->others_serial = walk->serial;
	s->others_ns += ns;
	return 0;
}

static __always_inline void culprit_part(struct culprit_walk *walk, struct task_struct *waiter,
					 enum culprit_kind kind, __u64 ns)
{
	add_share(walk, kind, ns);
}

static __always_inline bool culprit_wanted(__u64 wait_ns)
{
	return wait_ns >= targ_min_ns;
}

/* Finds the largest part of the wait that was divided last on this CPU. Removed without want_culprit. */
static __noinline int largest_share(struct culprit *largest)
{
	struct culprit_walk *walk = culprit_walk();
	__u32 zero = 0, serial;
	struct shares *s = bpf_map_lookup_elem(&shares, &zero);

	if (!walk || !s)
		return 0;
	serial = walk->serial;
	for (__u32 i = 0; i < SHARES_MAX; i++) {
		struct culprit *c = share_at(s, i);

		if (c->serial == serial && c->ns > largest->ns)
			__builtin_memcpy(largest, c, sizeof(*largest));
	}
	if (s->others_serial != serial || s->others_ns < largest->ns)
		return 0;
	__builtin_memset(largest, 0, sizeof(*largest));
	largest->kind = CULPRIT_UNKNOWN;
	return 0;
}

struct event_culprit {
	struct event event;
	struct culprit culprit;
};

static __always_inline void sched_wait_ended(void *ctx, struct task_struct *prev,
					     struct task_struct *next,
					     const struct sched_wait *wait)
{
	struct event_culprit all;
	struct event *e = &all.event;

	if (wait->ns < targ_min_ns)
		return;
	__builtin_memset(e, 0, sizeof(*e));
	task_info_read(&e->task, next);
	e->task.time_ns = bpf_ktime_get_boot_ns();
	e->latency_ns = wait->ns;
	e->cpu = bpf_get_smp_processor_id();
	e->prev_pid = BPF_CORE_READ(prev, tgid);
	e->prev_tid = BPF_CORE_READ(prev, pid);
	e->preempted = wait->preempted;
	BPF_CORE_READ_STR_INTO(&e->prev_comm, prev, comm);
	if (!want_culprit) {
		event_send(ctx, e, sizeof(*e), e->task.time_ns);
		return;
	}
	__builtin_memset(&all.culprit, 0, sizeof(all.culprit));
	largest_share(&all.culprit);
	event_send(ctx, &all, sizeof(all), e->task.time_ns);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
