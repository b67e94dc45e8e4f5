// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

const volatile bool user_stacks_only = false;
const volatile bool kernel_stacks_only = false;

struct off_note {
	__u64 kernel_stack;
	__u64 user_stack;
};

struct table_key {
	struct off_note stacks;
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

static __always_inline void handle_out(void *ctx, struct task_struct *prev, bool preempt)
{
	struct off_wait *wait = off_begin(prev, preempt);

	if (!wait)
		return;
	wait->note.kernel_stack = user_stacks_only ? 0 : kernel_stack(ctx);
	wait->note.user_stack = kernel_stacks_only ? 0 : user_stack(ctx);
	wait->since_ns = bpf_ktime_get_ns();
}

static __always_inline void handle_in(struct task_struct *next)
{
	struct off_wait *wait = off_wait_of(next);
	struct table_key key = {};
	struct table_value *value;
	__u64 ns = wait ? off_end(wait) : 0;

	if (!ns)
		return;
	key.stacks = wait->note;
	key.cgroup_id = task_cgroup_id(next);
	key.pid = BPF_CORE_READ(next, tgid);
	key.tid = BPF_CORE_READ(next, pid);
	BPF_CORE_READ_STR_INTO(&key.comm, next, comm);
	value = table_find(&key);
	if (!value)
		return;
	table_add(value, ns, ns);
	table_add(value, count, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch__btf, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	handle_out(ctx, prev, preempt);
	handle_in(next);
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(switch__raw, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	handle_out(ctx, prev, preempt);
	handle_in(next);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
