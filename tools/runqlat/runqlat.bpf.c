// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "schedwait.bpf.h"
#include "taskhist.bpf.h"

/* Group histograms by the start of the wait: detail is 1 after a preemption. */
const volatile bool by_reason = false;

/* A task that waited, and what used the CPU. Members that are not grouped by are 0. */
struct table_key {
	__u64 cgroup_id;
	__u64 culprit_cgroup_id;
	__u32 pid;
	__u32 tid;
	__u32 culprit_pid;
	__u32 culprit_tid;
	__u32 cpu;
	__u32 kind; /* enum culprit_kind */
	char comm[TASK_COMM_LEN];
	char culprit_comm[TASK_COMM_LEN];
};

struct table_value {
	__u64 total_ns;
	__u64 waits;
	__u32 last; /* serial number of the last wait on this CPU */
	__u32 pad;
};

#include "table.bpf.h"

/* Keeps the type in the BTF of the object, for Go. */
const enum culprit_kind *kind_type __attribute__((unused));

static __always_inline void read_waiter(struct table_key *key, struct task_struct *p)
{
	if (by_pid) {
		key->pid = BPF_CORE_READ(p, tgid);
		BPF_CORE_READ_STR_INTO(&key->comm, p, group_leader, comm);
	}
	if (by_tid) {
		key->tid = BPF_CORE_READ(p, pid);
		BPF_CORE_READ_STR_INTO(&key->comm, p, comm);
	}
	if (by_cgroup)
		key->cgroup_id = task_cgroup_id(p);
	if (by_cpu)
		key->cpu = bpf_get_smp_processor_id();
}

static __always_inline void read_culprit(struct table_key *key, const struct culprit_run *run)
{
	if (by_cgroup)
		key->culprit_cgroup_id = run->cgroup_id;
	if (by_pid)
		key->culprit_pid = run->pid;
	if (by_tid)
		key->culprit_tid = run->tid;
	if (by_pid || by_tid)
		__builtin_memcpy(key->culprit_comm, run->comm, sizeof(key->culprit_comm));
}

/* A key, not on the stack: with that of the callers it would exceed 512 bytes (5.10). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table_key);
} part_keys SEC(".maps");

static __noinline int count_part(struct culprit_walk *walk, struct task_struct *p, __u32 kind, __u64 ns)
{
	struct table_value *value;
	struct table_key *key;
	__u32 zero = 0;

	key = bpf_map_lookup_elem(&part_keys, &zero);
	if (!key)
		return 0;
	__builtin_memset(key, 0, sizeof(*key));
	key->kind = kind;
	read_waiter(key, p);
	if (kind == CULPRIT_TASK || kind == CULPRIT_THREAD)
		read_culprit(key, &walk->run);
	value = table_find(key);
	if (!value)
		return 0;
	table_add(value, total_ns, ns);
	if (value->last != walk->serial)
		table_add(value, waits, 1);
	value->last = walk->serial;
	return 0;
}

static __always_inline void culprit_part(struct culprit_walk *walk, struct task_struct *waiter,
					 enum culprit_kind kind, __u64 ns)
{
	count_part(walk, waiter, kind, ns);
}

static __always_inline bool culprit_wanted(__u64 wait_ns)
{
	return true;
}

static __always_inline void sched_wait_ended(void *ctx, struct task_struct *prev,
					     struct task_struct *next,
					     const struct sched_wait *wait)
{
	if (!want_culprit)
		taskhist_record_n(next, by_reason && wait->preempted, wait->ns, draw_weight(wait->shift));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
