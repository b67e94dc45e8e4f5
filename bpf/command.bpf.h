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
 * The task filter of a run that starts a command (Plan.Exec): its events are those of the
 * command's process and of all descendants, whoever their parent is by now.
 */

/* The process that is to execute the command: its id in user space's PID namespace. */
const volatile __u32 targ_command = 0;
/* That namespace, by the inode number of /proc/self/ns/pid. */
const volatile __u32 targ_command_ns = 0;

/* How deep that namespace is below the initial one. Set when the command begins. */
__u32 command_level;

/*
 * Processes of the command that run, by their ids in the initial PID namespace; the value is
 * the id in user space's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 17);
	__type(key, __u32);
	__type(value, __u32);
} command_processes SEC(".maps") USER_SPACE;

static __always_inline bool command_has(struct task_struct *p)
{
	__u32 pid = BPF_CORE_READ(p, tgid);

	return bpf_map_lookup_elem(&command_processes, &pid);
}

#include "task.bpf.h"

/* A process that cannot be added is lost with all that it does. */
static __always_inline void command_add(struct task_struct *process)
{
	__u32 pid = BPF_CORE_READ(process, tgid);
	__u32 ns_pid = BPF_CORE_READ(task_upid(process, command_level), nr);

	if (bpf_map_update_elem(&command_processes, &pid, &ns_pid, BPF_ANY))
		lost_add(map_full);
}

/*
 * The process that waits to execute the command is not part of it before it does, so that
 * what the shell did to wait is not counted.
 */
static __always_inline int command_begin(void)
{
	struct task_struct *task = task_current();
	__u32 level = BPF_CORE_READ(task, thread_pid, level);
	struct upid *upid = task_upid(task, level);

	if (BPF_CORE_READ(upid, nr) != targ_command || BPF_CORE_READ(upid, ns, ns.inum) != targ_command_ns)
		return 0;
	command_level = level;
	command_add(task);
	return 0;
}

/*
 * Runs in the parent before the child does. The id may have been that of a process of the
 * command before, whose end was missed.
 */
static __always_inline int command_fork(struct task_struct *parent, struct task_struct *child)
{
	__u32 pid = BPF_CORE_READ(child, tgid);

	if (BPF_CORE_READ(child, pid) != pid)
		return 0;
	if (command_has(parent))
		command_add(child);
	else
		bpf_map_delete_elem(&command_processes, &pid);
	return 0;
}

/* Of the threads of a process, the last one to exit takes it out. */
static __always_inline int command_exit(void)
{
	struct task_struct *task = task_current();
	__u32 pid = BPF_CORE_READ(task, tgid);

	if (!BPF_CORE_READ(task, signal, live.counter))
		bpf_map_delete_elem(&command_processes, &pid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int command__btf__exec(void *ctx)
{
	return NOT_PREEMPTED(command_begin());
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(command__btf__fork, struct task_struct *parent, struct task_struct *child)
{
	return NOT_PREEMPTED(command_fork(parent, child));
}

SEC("tp_btf/sched_process_exit")
int command__btf__exit(void *ctx)
{
	return NOT_PREEMPTED(command_exit());
}

SEC("raw_tp/sched_process_exec")
int command__raw__exec(void *ctx)
{
	return NOT_PREEMPTED(command_begin());
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(command__raw__fork, struct task_struct *parent, struct task_struct *child)
{
	return NOT_PREEMPTED(command_fork(parent, child));
}

SEC("raw_tp/sched_process_exit")
int command__raw__exit(void *ctx)
{
	return NOT_PREEMPTED(command_exit());
}

#endif
