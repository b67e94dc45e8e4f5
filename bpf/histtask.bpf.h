/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __HISTTASK_BPF_H
#define __HISTTASK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "hist.bpf.h"
#include "task.bpf.h"

/*
 * Histograms of values that belong to tasks. In a run with exponential slots, whose output is exported,
 * each slot has an exemplar: the task of the first value that was counted in an interval.
 */

struct hist_exemplar {
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u64 value; /* nanoseconds for durations */
	__u64 cgroup_id;
	__u32 pid; /* of the process (tgid), initial PID namespace */
	__u32 tid;
	char comm[TASK_COMM_LEN]; /* of the thread */
};

/*
 * Without the CPU, and in a run with a single histogram without the key. If the map is full, slots
 * have no exemplar. User space removes it, with its only user, from other runs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 14);
	__type(key, struct hist_entry);
	__type(value, struct hist_exemplar);
} hist_exemplars SEC(".maps") USER_SPACE;

static __always_inline void hist_add_exemplar(const struct hist_key *key, __u32 nr, __u32 epoch, __u64 value,
					      struct task_struct *task)
{
	struct hist_exemplar exemplar = { .time_ns = bpf_ktime_get_boot_ns(), .value = value };
	struct hist_entry entry = { .slot = nr, .epoch = epoch };

	if (!hist_plain)
		entry.key = *key;
	exemplar.cgroup_id = task_cgroup_id(task);
	exemplar.pid = BPF_CORE_READ(task, tgid);
	exemplar.tid = BPF_CORE_READ(task, pid);
	BPF_CORE_READ_STR_INTO(&exemplar.comm, task, comm);
	bpf_map_update_elem(&hist_exemplars, &entry, &exemplar, BPF_NOEXIST);
}

/* User space removes the body from runs without exponential slots (probe.Cut). */
static __noinline int hist_count_task(const struct hist_key *key, __u64 value, struct task_struct *task, __u64 n)
{
	__u32 nr = hist_exponential_slot_of(value), epoch = count_epoch;
	struct hist_slot *slot = hist_plain ? hist_find_plain(nr, epoch) : hist_find(key, nr, epoch);

	if (!slot) {
		lost_add_n(map_full, n);
		return 0;
	}
	if (!slot->count)
		hist_add_exemplar(key, nr, epoch, value, task);
	hist_add(slot, value, n);
	return 0;
}

/* hist_record_n() of a value that belongs to this task: not always to the current one. */
static __always_inline void hist_record_task_n(const struct hist_key *key, __u64 value, struct task_struct *task,
					       __u64 n)
{
	__u64 unit_ns = hist_unit_ns;

	if (unit_ns == HIST_EXPONENTIAL) {
		/* The key itself need not be in memory then. */
		struct hist_key copy = *key;

		hist_count_task(&copy, value, task, n);
		return;
	}
	hist_count(key, hist_slot_of(hist_fixed_point(unit_ns, value)), value, n);
}

static __always_inline void hist_record_task(const struct hist_key *key, __u64 value, struct task_struct *task)
{
	hist_record_task_n(key, value, task, 1);
}

#endif
