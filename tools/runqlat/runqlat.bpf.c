// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "sched.bpf.h"
#include "task.bpf.h"

/* Group histograms by these; the other members of the key are 0. */
const volatile bool by_pid = false;
const volatile bool by_tid = false;
const volatile bool by_pidns = false;
const volatile bool by_cgroup = false;
const volatile bool by_cpu = false;
const volatile bool by_reason = false;

struct hist_key {
	__u64 cgroup_id;
	__u32 pid;
	__u32 tid;
	__u32 pidns; /* inode number */
	__u32 cpu;
	char comm[TASK_COMM_LEN]; /* of the thread with by_tid, otherwise of the process */
	__u32 preempted;
	__u32 pad;
};

#include "hist.bpf.h"

/* The PID namespace in which the task was created. A reaped task has none. */
static __always_inline __u32 task_pidns(struct task_struct *p)
{
	struct pid *pid = BPF_CORE_READ(p, thread_pid);
	struct upid *upid = (void *)pid + bpf_core_field_offset(struct pid, numbers);

	upid = (void *)upid + BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);
	return BPF_CORE_READ(upid, ns, ns.inum);
}

static __always_inline void read_key(struct hist_key *key, struct task_struct *p, bool preempted)
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
	if (by_reason)
		key->preempted = preempted;
}

static __always_inline int handle_switch(struct task_struct *prev, __u32 prev_tid, bool runnable,
					 struct task_struct *next, __u32 next_tid)
{
	struct hist_key key = {};
	struct sched_wait wait;

	if (!sched_wait_switch(prev, prev_tid, runnable, next_tid, &wait))
		return 0;
	if (!hist_plain)
		read_key(&key, next, wait.preempted);
	hist_record(&key, wait.ns);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(queue__btf__wakeup, struct task_struct *p)
{
	sched_wait_begin(p, p->pid, TASK_ON_CPU(p));
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(queue__btf__wakeup_new, struct task_struct *p)
{
	sched_wait_begin(p, p->pid, TASK_ON_CPU(p));
	return 0;
}

/*
 * preempt reports that prev was preempted, whatever its state: it may have been about to sleep, but
 * stays on the run queue. The arguments after next (5.18) are not read.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(queue__btf__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool runnable = preempt || !TASK_STATE(prev);

	return handle_switch(prev, prev->pid, runnable, next, next->pid);
}

SEC("raw_tp/sched_wakeup")
int BPF_PROG(queue__raw__wakeup, struct task_struct *p)
{
	sched_wait_begin(p, BPF_CORE_READ(p, pid), TASK_ON_CPU_READ(p));
	return 0;
}

SEC("raw_tp/sched_wakeup_new")
int BPF_PROG(queue__raw__wakeup_new, struct task_struct *p)
{
	sched_wait_begin(p, BPF_CORE_READ(p, pid), TASK_ON_CPU_READ(p));
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(queue__raw__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool runnable = preempt || !task_state(prev);

	return handle_switch(prev, BPF_CORE_READ(prev, pid), runnable, next,
			     BPF_CORE_READ(next, pid));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
