/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __COMMAND_BPF_H
#define __COMMAND_BPF_H

#ifdef __TASK_BPF_H
#error "include command.bpf.h before task.bpf.h, whose filter it extends"
#endif
#define TASK_COMMAND

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"

/*
 * The task filter of a run that starts a command (Plan.Exec). It selects the process of the command
 * and all of its descendants, including those with another parent by now.
 */

/* The process that will execute the command: its PID in the PID namespace of user space. */
const volatile __u32 targ_command = 0;
/* The inode number of that namespace (/proc/self/ns/pid). */
const volatile __u32 targ_command_ns = 0;

/* The level of that namespace below the initial one. Set when the command begins. */
__u32 command_level;

/*
 * Live processes of the command. The key is the PID in the initial PID namespace, the value the PID
 * in that of user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, __u32);
	__type(value, __u32);
} command_processes SEC(".maps") USER_SPACE;

static __always_inline bool command_contains(struct task_struct *p)
{
	__u32 pid = BPF_CORE_READ(p, tgid);

	return bpf_map_lookup_elem(&command_processes, &pid);
}

#include "task.bpf.h"

/*
 * Adds a process. If the map is full, all events of the process are lost. second is set in the
 * second of two programs, which counts that.
 */
static __always_inline void command_add(struct task_struct *process, bool second)
{
	__u32 pid = BPF_CORE_READ(process, tgid);
	__u32 ns_pid = BPF_CORE_READ(task_upid(process, command_level), nr);

	if (bpf_map_update_elem(&command_processes, &pid, &ns_pid, BPF_ANY) && second)
		lost_add(map_full);
}

/*
 * The process belongs to the command from its exec on, so that what it did while it waited is not
 * counted.
 */
static __always_inline int command_begin(bool second)
{
	struct task_struct *task = task_current();
	__u32 level = BPF_CORE_READ(task, thread_pid, level);
	struct upid *upid = task_upid(task, level);

	if (BPF_CORE_READ(upid, nr) != targ_command || BPF_CORE_READ(upid, ns, ns.inum) != targ_command_ns)
		return 0;
	command_level = level;
	command_add(task, second);
	return 0;
}

/*
 * Runs in the parent before the child runs. An entry with the PID of the child can be that of an
 * earlier process whose exit was not observed.
 */
static __always_inline int command_fork(struct task_struct *parent, struct task_struct *child,
					bool second)
{
	__u32 pid = BPF_CORE_READ(child, tgid);

	if (BPF_CORE_READ(child, pid) != pid)
		return 0;
	if (command_contains(parent))
		command_add(child, second);
	else
		bpf_map_delete_elem(&command_processes, &pid);
	return 0;
}

/* Removes the process when its last thread exits. */
static __always_inline int command_exit(void)
{
	struct task_struct *task = task_current();
	__u32 pid = BPF_CORE_READ(task, tgid);

	if (!BPF_CORE_READ(task, signal, live.counter))
		bpf_map_delete_elem(&command_processes, &pid);
	return 0;
}

/*
 * Each program exists twice, because the kernel can skip one of them, see
 * TRACEPOINTS_ARE_PREEMPTIBLE. To run both for the same event has no effect.
 */
SEC("tp_btf/sched_process_exec")
int command__btf__exec(void *ctx)
{
	return NOT_PREEMPTED(command_begin(false));
}

SEC("tp_btf/sched_process_exec")
int command__btf__exec__again(void *ctx)
{
	return NOT_PREEMPTED(command_begin(true));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(command__btf__fork, struct task_struct *parent, struct task_struct *child)
{
	return NOT_PREEMPTED(command_fork(parent, child, false));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(command__btf__fork__again, struct task_struct *parent, struct task_struct *child)
{
	return NOT_PREEMPTED(command_fork(parent, child, true));
}

SEC("tp_btf/sched_process_exit")
int command__btf__exit(void *ctx)
{
	return NOT_PREEMPTED(command_exit());
}

SEC("tp_btf/sched_process_exit")
int command__btf__exit__again(void *ctx)
{
	return NOT_PREEMPTED(command_exit());
}

SEC("raw_tp/sched_process_exec")
int command__raw__exec(void *ctx)
{
	return NOT_PREEMPTED(command_begin(false));
}

SEC("raw_tp/sched_process_exec")
int command__raw__exec__again(void *ctx)
{
	return NOT_PREEMPTED(command_begin(true));
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(command__raw__fork, struct task_struct *parent, struct task_struct *child)
{
	return NOT_PREEMPTED(command_fork(parent, child, false));
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(command__raw__fork__again, struct task_struct *parent, struct task_struct *child)
{
	return NOT_PREEMPTED(command_fork(parent, child, true));
}

SEC("raw_tp/sched_process_exit")
int command__raw__exit(void *ctx)
{
	return NOT_PREEMPTED(command_exit());
}

SEC("raw_tp/sched_process_exit")
int command__raw__exit__again(void *ctx)
{
	return NOT_PREEMPTED(command_exit());
}

#endif
