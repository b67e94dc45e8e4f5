// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

/* Only the start of a wait is stored. */
struct off_note {
};

struct table_key {
	__u64 kernel_stack;
	__u32 waker_pid;
	__u32 pid;
	char waker[TASK_COMM_LEN];
	char comm[TASK_COMM_LEN];
};

struct table_value {
	__u64 ns;
	__u64 count;
};

#include "table.bpf.h"
#include "offcpu.bpf.h"

static __always_inline void handle_switch(struct task_struct *prev, bool preempt,
					  struct task_struct *next)
{
	struct off_wait *wait = preempt ? NULL : off_begin(prev, preempt);
	struct off_wait *ended = off_wait_find(next);

	if (wait)
		wait->since_ns = bpf_ktime_get_ns();
	if (ended)
		ended->since_ns = 0;
}

/* Runs in the context of the waker, on any CPU. */
static __always_inline void handle_waking(void *ctx, struct task_struct *p)
{
	struct off_wait *wait = off_wait_find(p);
	struct table_key key = {};
	struct table_value *value;
	__u64 ns = wait ? off_end(wait, bpf_ktime_get_ns()) : 0;

	if (!ns)
		return;
	key.kernel_stack = kernel_stack(ctx);
	key.waker_pid = bpf_get_current_pid_tgid() >> 32;
	key.pid = BPF_CORE_READ(p, tgid);
	bpf_get_current_comm(key.waker, sizeof(key.waker));
	BPF_CORE_READ_STR_INTO(&key.comm, p, comm);
	value = table_find(&key);
	if (!value)
		return;
	table_add(value, ns, ns);
	table_add(value, count, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(wait__btf__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	handle_switch(prev, preempt, next);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(wait__btf__waking, struct task_struct *p)
{
	handle_waking(ctx, p);
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(wait__raw__switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	handle_switch(prev, preempt, next);
	return 0;
}

SEC("raw_tp/sched_waking")
int BPF_PROG(wait__raw__waking, struct task_struct *p)
{
	handle_waking(ctx, p);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
