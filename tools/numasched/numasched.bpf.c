// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

#define TASK_DEAD_STATE 0x80

struct event {
	struct task_info task; /* that was moved */
	__u32 src_node;
	__u32 dst_node;
	__u32 cpu; /* that the task runs on */
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/*
 * The NUMA node on which a task last ran, plus 1, by thread ID; 0 if it has not run since the start.
 * User space sizes the array for all possible IDs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 22);
	__type(key, __u32);
	__type(value, __u32);
} task_nodes SEC(".maps") USER_SPACE;

static __always_inline int send_move(void *ctx, struct task_struct *p, __u32 src, __u32 dst)
{
	struct event e = {};

	if (!task_wanted(p))
		return 0;
	task_info_read(&e.task, p);
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.src_node = src;
	e.dst_node = dst;
	e.cpu = bpf_get_smp_processor_id();
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

/* Idle tasks (TID 0) do not move. A task that has exited leaves its ID to another one. */
static __always_inline int handle_switch(void *ctx, bool preempt, struct task_struct *prev,
					 __u32 prev_tid, struct task_struct *next, __u32 next_tid)
{
	__u32 here = bpf_get_numa_node_id() + 1, there;
	__u32 *node = prev_tid ? bpf_map_lookup_elem(&task_nodes, &prev_tid) : NULL;

	/* The switch of a CPU of this node to prev was not observed. */
	if (node && *node && *node != here && task_wanted(prev))
		lost_add(unobserved);
	if (node)
		*node = !preempt && task_state(prev) & TASK_DEAD_STATE ? 0 : here;
	if (!next_tid)
		return 0;
	node = bpf_map_lookup_elem(&task_nodes, &next_tid);
	if (!node) {
		if (task_wanted(next))
			lost_add(map_full);
		return 0;
	}
	there = *node;
	*node = here;
	return there && there != here ? send_move(ctx, next, there - 1, here - 1) : 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch__btf, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return handle_switch(ctx, preempt, prev, prev->pid, next, next->pid);
}

SEC("raw_tp/sched_switch")
int BPF_PROG(switch__raw, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return handle_switch(ctx, preempt, prev, BPF_CORE_READ(prev, pid), next,
			     BPF_CORE_READ(next, pid));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
