// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "map.bpf.h"
#include "task.bpf.h"

#define SIGNAL_GROUP_EXIT 0x4 /* include/linux/sched/signal.h */

/* A row per thread instead of per process. */
const volatile bool targ_threads = false;
/* Only a non-zero exit code, or a signal. */
const volatile bool targ_failed = false;

struct event {
	struct task_info task; /* the thread, or the leader of the process */
	__u64 age_ns;
	__u32 ppid;
	__u32 status; /* as wait(2) returns it */
	char parent_comm[TASK_COMM_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* A process, distinguished from all others with the same PID. */
struct process {
	__u64 start_ns;
	__u32 pid;
	__u32 pad;
};

/* Processes with several threads whose end was reported. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct process);
	__type(value, __u8);
} ended SEC(".maps");

/* From 6.16 on the tracepoint states whether the thread is the last one of its process. */
typedef void (*btf_trace_sched_process_exit___dead)(void *, struct task_struct *, bool);

/*
 * Several threads that exit at once can all see that no thread is left. The first one reports the
 * end of the process. The last one can come when the others have been removed from the process.
 */
static __always_inline bool is_first_to_see(struct task_struct *leader, struct signal_struct *signal)
{
	struct process key = {
		.start_ns = BPF_CORE_READ(leader, start_boottime),
		.pid = BPF_CORE_READ(leader, tgid),
	};
	__u8 one = 1;

	if (BPF_CORE_READ(signal, nr_threads) == 1)
		return !bpf_map_lookup_elem(&ended, &key);
	return !map_has_key(bpf_map_update_elem(&ended, &key, &one, BPF_NOEXIST));
}

static __always_inline bool process_ends(__u64 *ctx, struct task_struct *leader,
					 struct signal_struct *signal)
{
	__u64 is_last;

	if (bpf_core_type_exists(btf_trace_sched_process_exit___dead)) {
		is_last = ctx[1];
		barrier_var(is_last); /* see block_arg() */
		return is_last & 1;
	}
	return !BPF_CORE_READ(signal, live.counter) && is_first_to_see(leader, signal);
}

/* The status that wait(2) returns for the process. */
static __always_inline __u32 process_status(struct task_struct *leader, struct signal_struct *signal)
{
	if (BPF_CORE_READ(signal, flags) & SIGNAL_GROUP_EXIT)
		return BPF_CORE_READ(signal, group_exit_code);
	return BPF_CORE_READ(leader, exit_code);
}

static __always_inline void report(void *ctx, struct task_struct *task, __u32 status)
{
	struct task_struct *parent = BPF_CORE_READ(task, real_parent);
	struct event e = {};

	if ((targ_failed && !status) || !task_wanted(task))
		return;
	task_info_read(&e.task, task);
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.age_ns = e.task.time_ns - BPF_CORE_READ(task, start_boottime);
	e.ppid = BPF_CORE_READ(parent, tgid);
	e.status = status;
	BPF_CORE_READ_STR_INTO(&e.parent_comm, parent, comm);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

static __always_inline int handle_exit(__u64 *ctx)
{
	struct task_struct *task = task_current();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct signal_struct *signal = BPF_CORE_READ(task, signal);

	if (targ_threads)
		report(ctx, task, BPF_CORE_READ(task, exit_code));
	else if (process_ends(ctx, leader, signal))
		report(ctx, leader, process_status(leader, signal));
	return 0;
}

/*
 * Where programs can be preempted, the program exists twice: the second one handles the exits that
 * the kernel skipped the first one for, see TRACEPOINTS_ARE_PREEMPTIBLE. The first one notes what it
 * handles, by task and start time, because the memory of a task is used again.
 */
struct handled {
	__u64 task;
	__u64 start_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct handled);
	__type(value, __u8);
} handled_exits SEC(".maps");

static __always_inline struct handled handled_key(void)
{
	struct task_struct *task = task_current();
	struct handled key = {
		.task = (__u64)task,
		.start_ns = BPF_CORE_READ(task, start_boottime),
	};

	return key;
}

static __always_inline int exit_first(__u64 *ctx)
{
	__u8 one = 1;

	if (TRACEPOINTS_ARE_PREEMPTIBLE) {
		struct handled key = handled_key();

		if (bpf_map_update_elem(&handled_exits, &key, &one, BPF_ANY))
			return 0; /* left to the second program */
	}
	return handle_exit(ctx);
}

static __always_inline int exit_second(__u64 *ctx)
{
	if (TRACEPOINTS_ARE_PREEMPTIBLE) {
		struct handled key = handled_key();

		if (bpf_map_delete_elem(&handled_exits, &key))
			return handle_exit(ctx);
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int exit__btf(__u64 *ctx)
{
	return NOT_PREEMPTED(exit_first(ctx));
}

SEC("tp_btf/sched_process_exit")
int exit__btf__again(__u64 *ctx)
{
	return NOT_PREEMPTED(exit_second(ctx));
}

SEC("raw_tp/sched_process_exit")
int exit__raw(__u64 *ctx)
{
	return NOT_PREEMPTED(exit_first(ctx));
}

SEC("raw_tp/sched_process_exit")
int exit__raw__again(__u64 *ctx)
{
	return NOT_PREEMPTED(exit_second(ctx));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
