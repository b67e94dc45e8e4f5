/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TASK_BPF_H
#define __TASK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define TASK_COMM_LEN 16
#define TASK_TARGETS_MAX 16
#define CGROUP_DEPTH_MAX 32
#define TASK_THREADS_TRIED 64
/* MAX_PID_NS_LEVEL of the kernel. */
#define TASK_PIDNS_LEVELS 32

/* The task filter of all tools. Without task_filter every task is wanted. */
const volatile bool task_filter = false;
const volatile __u32 targ_nr_pids = 0;
const volatile __u32 targ_pids[TASK_TARGETS_MAX] = {};
const volatile __u32 targ_nr_tids = 0;
const volatile __u32 targ_tids[TASK_TARGETS_MAX] = {};
const volatile bool targ_by_uid = false;
const volatile __u32 targ_uid = 0;
/* Including the NUL byte to compare the whole name, without it to compare a prefix. */
const volatile __u32 targ_comm_len = 0;
const volatile char targ_comm[TASK_COMM_LEN] = {};
const volatile __u64 targ_cgroup_id = 0;

/*
 * --cgroupmap and --mntnsmap: IDs of cgroups (v2), and inode numbers of mount namespaces. User space
 * replaces these by maps that another program has pinned and updates. Otherwise task_in_no_map()
 * is removed with them before the load (probe.Cut).
 */
const volatile bool targ_by_cgroup_map = false;
const volatile bool targ_by_mntns_map = false;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} targ_cgroup_map SEC(".maps"), targ_mntns_map SEC(".maps");

/*
 * The inode number of the PID namespace that corescope runs in, 0 for the initial one. --pid,
 * /proc and perf's records have the IDs of that namespace, task->pid and task->tgid those of the
 * initial one.
 */
const volatile __u32 local_pidns = 0;

/* Index into css_set.subsys of the v1 hierarchy that cgroups are named by, or -1 for v2. */
const volatile __s32 task_cgroup_subsys = -1;

/* First member of events that belong to a task. */
struct task_info {
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u64 cgroup_id;
	__u32 pid; /* of the process (tgid), initial PID namespace */
	__u32 tid;
	__u32 uid;
	char comm[TASK_COMM_LEN];
	__u32 pad;
};

static __always_inline struct cgroup *task_cgroup(struct task_struct *p)
{
	struct css_set *cset = BPF_CORE_READ(p, cgroups);
	struct cgroup_subsys_state *css = NULL;

	if (task_cgroup_subsys < 0)
		return BPF_CORE_READ(cset, dfl_cgrp);
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)cset + bpf_core_field_offset(struct css_set, subsys) +
				      task_cgroup_subsys * sizeof(css));
	return BPF_CORE_READ(css, cgroup);
}

static __always_inline __u64 task_cgroup_id(struct task_struct *p)
{
	return BPF_CORE_READ(task_cgroup(p), kn, id);
}

/* Walks up by css, because cgroup.ancestor_ids became cgroup.ancestors in 6.1 (7f203bc89eb6). */
static __always_inline bool cgroup_is_under(struct cgroup *cgrp, __u64 ancestor_id)
{
	struct cgroup_subsys_state *css = (void *)cgrp + bpf_core_field_offset(struct cgroup, self);

	for (int i = 0; i < CGROUP_DEPTH_MAX && css; i++) {
		cgrp = (void *)css - bpf_core_field_offset(struct cgroup, self);
		if (BPF_CORE_READ(cgrp, kn, id) == ancestor_id)
			return true;
		css = BPF_CORE_READ(css, parent);
	}
	return false;
}

/* The ID in the PID namespace at that level, which is the task's own or an ancestor of it. */
static __always_inline struct upid *pid_upid(struct pid *pid, __u32 level)
{
	return (void *)pid + bpf_core_field_offset(struct pid, numbers) +
	       level * bpf_core_type_size(struct upid);
}

static __always_inline struct upid *task_upid(struct task_struct *task, __u32 level)
{
	return pid_upid(BPF_CORE_READ(task, thread_pid), level);
}

/*
 * task_local_id returns the ID of a thread in the PID namespace of user space, 0 if it has none
 * there. The level of that namespace is unknown, so all below the initial one are compared.
 */
static __noinline __u32 task_local_id(struct task_struct *p)
{
	struct pid *pid = BPF_CORE_READ(p, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	struct upid *upid;

	for (__u32 i = 1; i <= TASK_PIDNS_LEVELS; i++) {
		if (i > level)
			break;
		upid = pid_upid(pid, i);
		if (BPF_CORE_READ(upid, ns, ns.inum) == local_pidns)
			return BPF_CORE_READ(upid, nr);
	}
	return 0;
}

static __always_inline __u32 task_local_tid(struct task_struct *p)
{
	return local_pidns ? task_local_id(p) : BPF_CORE_READ(p, pid);
}

/* The same for the thread-group leader, which gives the PID. */
static __always_inline __u32 task_local_pid(struct task_struct *p)
{
	if (!local_pidns)
		return BPF_CORE_READ(p, tgid);
	return task_local_id(BPF_CORE_READ(p, group_leader));
}

static __always_inline bool task_comm_wanted(struct task_struct *p)
{
	char comm[TASK_COMM_LEN] = {};

	BPF_CORE_READ_STR_INTO(&comm, p, comm);
	for (int i = 0; i < TASK_COMM_LEN; i++) {
		if (i >= targ_comm_len)
			break;
		if (comm[i] != targ_comm[i])
			return false;
	}
	return true;
}

static __always_inline bool id_in(__u32 id, const volatile __u32 *ids, __u32 nr)
{
	for (int i = 0; i < TASK_TARGETS_MAX; i++) {
		if (i >= nr)
			break;
		if (ids[i] == id)
			return true;
	}
	return false;
}

static __noinline int task_in_no_map(struct task_struct *p)
{
	__u64 id;

	if (targ_by_cgroup_map) {
		id = BPF_CORE_READ(p, cgroups, dfl_cgrp, kn, id);
		if (!bpf_map_lookup_elem(&targ_cgroup_map, &id))
			return 1;
	}
	if (targ_by_mntns_map) {
		id = BPF_CORE_READ(p, nsproxy, mnt_ns, ns.inum);
		if (!bpf_map_lookup_elem(&targ_mntns_map, &id))
			return 1;
	}
	return 0;
}

/*
 * Applies the task filter to a task that acts for a cgroup, which can be another one than its own.
 */
static __always_inline bool task_wanted_in(struct task_struct *p, struct cgroup *cgrp)
{
	if (!task_filter)
		return true;
#ifdef TASK_COMMAND
	if (targ_command && !command_contains(p))
		return false;
#endif
	if (targ_nr_pids && !id_in(task_local_pid(p), targ_pids, targ_nr_pids))
		return false;
	if (targ_nr_tids && !id_in(task_local_tid(p), targ_tids, targ_nr_tids))
		return false;
	if (targ_by_uid && BPF_CORE_READ(p, cred, uid.val) != targ_uid)
		return false;
	if (targ_comm_len && !task_comm_wanted(p))
		return false;
	if (targ_cgroup_id && !cgroup_is_under(cgrp, targ_cgroup_id))
		return false;
	return !task_in_no_map(p);
}

/* Applies the task filter to any task. Tools pass the task that the event belongs to. */
static __always_inline bool task_wanted(struct task_struct *p)
{
	return task_wanted_in(p, targ_cgroup_id ? task_cgroup(p) : NULL);
}

/*
 * process_mm returns the memory of a task's process. The thread-group leader has none after it has
 * exited, which can be before the other threads: then it is that of the first thread that has some.
 * Threads without memory leave the list soon, so only a few are skipped.
 */
static __always_inline struct mm_struct *process_mm(struct task_struct *task)
{
	struct signal_struct *signal = BPF_CORE_READ(task, signal);
	struct list_head *head = __builtin_preserve_access_index(&signal->thread_head);
	struct list_head *at = BPF_CORE_READ(head, next);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	for (int i = 0; i < TASK_THREADS_TRIED && !mm && at && at != head; i++) {
		task = (void *)at - bpf_core_field_offset(struct task_struct, thread_node);
		mm = BPF_CORE_READ(task, mm);
		at = BPF_CORE_READ(at, next);
	}
	return mm;
}

static __always_inline struct task_struct *task_current(void)
{
	return (struct task_struct *)bpf_get_current_task();
}

static __always_inline bool task_current_wanted(void)
{
	return !task_filter || task_wanted(task_current());
}

static __always_inline __u64 task_current_cgroup_id(void)
{
	if (task_cgroup_subsys < 0)
		return bpf_get_current_cgroup_id();
	return task_cgroup_id(task_current());
}

/* Fills t from any task, except for the time. The caller has zeroed the event. */
static __always_inline void task_info_read(struct task_info *t, struct task_struct *p)
{
	t->cgroup_id = task_cgroup_id(p);
	t->pid = BPF_CORE_READ(p, tgid);
	t->tid = BPF_CORE_READ(p, pid);
	t->uid = BPF_CORE_READ(p, cred, uid.val);
	BPF_CORE_READ_STR_INTO(&t->comm, p, comm);
}

/* Fills t from the current task. The caller has zeroed the event. */
static __always_inline void task_info_current(struct task_info *t)
{
	__u64 id = bpf_get_current_pid_tgid();

	t->time_ns = bpf_ktime_get_boot_ns();
	t->cgroup_id = task_current_cgroup_id();
	t->pid = id >> 32;
	t->tid = id;
	t->uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(t->comm, sizeof(t->comm));
}

#endif
