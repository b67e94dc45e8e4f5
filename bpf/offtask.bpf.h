/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __OFFTASK_BPF_H
#define __OFFTASK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/*
 * Counts waits by thread and by struct off_note, which the tool defines before it includes this
 * header.
 */

const volatile bool user_stacks_only = false;
const volatile bool kernel_stacks_only = false;

struct table_key {
	struct off_note note;
	__u64 cgroup_id;
	__u32 pid;
	__u32 tid;
	char comm[TASK_COMM_LEN];
};

struct table_value {
	__u64 ns;
	__u64 count;
};

#include "table.bpf.h"
#include "offcpu.bpf.h"

/* The stacks of the current task, 0 for those that are not wanted. */
static __always_inline stack_id_t wanted_kernel_stack(void *ctx)
{
	return user_stacks_only ? 0 : kernel_stack(ctx);
}

static __always_inline stack_id_t wanted_user_stack(void *ctx)
{
	return kernel_stacks_only ? 0 : user_stack(ctx);
}

/*
 * Defined by the tool: fills the note of a wait that begins, in the context of the waiting thread.
 */
static __always_inline void note_wait(void *ctx, struct off_note *note);

/*
 * off_count counts the wait of a thread that is switched to a CPU. If the thread was observed to get
 * a CPU, but not to leave it, the wait is lost. From the first switch on it has an entry. It is not
 * inlined, because its key and that of the table would be on the stack of the program while a user
 * stack is read.
 */
static __noinline int off_count(struct task_struct *next, __u64 now_ns)
{
	struct off_wait *wait = off_wait_next(next);
	struct table_key key = {};
	struct table_value *value;
	__u64 ns;

	if (!wait)
		return 0;
	if (wait->since_ns == OFF_RUNS && off_thread_wanted(next))
		lost_add(unobserved);
	ns = off_end(wait, now_ns);
	if (!ns)
		return 0;
	key.note = wait->note;
	key.cgroup_id = task_cgroup_id(next);
	key.pid = BPF_CORE_READ(next, tgid);
	key.tid = BPF_CORE_READ(next, pid);
	BPF_CORE_READ_STR_INTO(&key.comm, next, comm);
	value = table_find(&key);
	if (!value)
		return 0;
	table_add(value, ns, ns);
	table_add(value, count, 1);
	return 0;
}

static __always_inline int off_switch(void *ctx, struct task_struct *prev, bool preempt,
				      struct task_struct *next)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct off_wait *wait = off_begin(prev, preempt);

	if (wait) {
		note_wait(ctx, &wait->note);
		wait->preempted = preempt;
		wait->since_ns = now_ns;
	}
	off_count(next, now_ns);
	return 0;
}

#endif
