/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TASKHIST_BPF_H
#define __TASKHIST_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/* Histograms of tasks: their key, and the options that select its members. */

/* Group histograms by these; the other members of the key are 0. */
const volatile bool by_pid = false;
const volatile bool by_tid = false;
const volatile bool by_pidns = false;
const volatile bool by_cgroup = false;
const volatile bool by_cpu = false;

struct hist_key {
	__u64 cgroup_id;
	__u32 pid;
	__u32 tid;
	__u32 pidns; /* inode number */
	__u32 cpu;
	char comm[TASK_COMM_LEN]; /* of the thread with by_tid, otherwise of the process */
	__u32 detail; /* defined by the tool */
	__u32 pad;
};

#include "histtask.bpf.h"

/* The PID namespace in which the task was created. A reaped task has none. */
static __always_inline __u32 task_pidns(struct task_struct *p)
{
	struct pid *pid = BPF_CORE_READ(p, thread_pid);
	struct upid *upid = (void *)pid + bpf_core_field_offset(struct pid, numbers);

	upid = (void *)upid + BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);
	return BPF_CORE_READ(upid, ns, ns.inum);
}

static __always_inline void taskhist_read_key(struct hist_key *key, struct task_struct *p)
{
	if (by_pid) {
		key->pid = BPF_CORE_READ(p, tgid);
		BPF_CORE_READ_STR_INTO(&key->comm, p, group_leader, comm);
	}
	if (by_tid) {
		key->tid = BPF_CORE_READ(p, pid);
		BPF_CORE_READ_STR_INTO(&key->comm, p, comm);
	}
	if (by_pidns)
		key->pidns = task_pidns(p);
	if (by_cgroup)
		key->cgroup_id = task_cgroup_id(p);
	if (by_cpu)
		key->cpu = bpf_get_smp_processor_id();
}

/* Counts a duration of the task n times, on the current CPU. */
static __always_inline void taskhist_record_n(struct task_struct *p, __u32 detail, __u64 ns, __u64 n)
{
	struct hist_key key = {};

	if (!hist_plain) {
		taskhist_read_key(&key, p);
		key.detail = detail;
	}
	hist_record_task_n(&key, ns, p, n);
}

static __always_inline void taskhist_record(struct task_struct *p, __u32 detail, __u64 ns)
{
	taskhist_record_n(p, detail, ns, 1);
}

#endif
