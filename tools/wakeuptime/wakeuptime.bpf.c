// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "observing.bpf.h"
#include "task.bpf.h"

/* Besides the start of a wait. */
struct off_note {
	__u64 woken; /* woken since the last switch of a CPU to it */
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

/* Time of the first observed sched_waking. */
__u64 first_waking_ns;

/*
 * prev leaves its CPU. A thread that is preempted or yields will not be woken. If it still waits to
 * be woken, neither that nor the switch to it was observed.
 */
static __always_inline void begin_wait(struct task_struct *prev, bool preempt)
{
	struct off_wait *wait;

	if (preempt || !task_state(prev)) {
		wait = off_wait_find(prev);
		if (wait && wait->since_ns > OFF_RUNS)
			lost_add(unobserved);
		if (wait)
			wait->since_ns = 0;
		return;
	}
	wait = off_begin(prev, preempt);
	if (wait)
		wait->since_ns = bpf_ktime_get_ns();
}

/*
 * next gets a CPU: if it still waits to be woken, that was not observed. A thread can also be woken
 * just before it leaves its CPU; such a wait has no length.
 */
static __always_inline void end_wait(struct task_struct *next)
{
	struct off_wait *wait = off_wait_next(next);

	if (!wait)
		return;
	if (observing && first_waking_ns && wait->since_ns > first_waking_ns && !wait->note.woken)
		lost_add(unobserved);
	wait->since_ns = OFF_RUNS;
	wait->note.woken = false;
}

/* Whether the thread is on a CPU or a run queue; always, in a kernel without SMP. */
static __always_inline bool is_runnable(struct task_struct *p)
{
	if (!bpf_core_field_exists(p->on_cpu))
		return true;
	return BPF_CORE_READ(p, on_cpu) || BPF_CORE_READ(p, on_rq);
}

/*
 * A thread without the start of a wait is woken. It may not have left its CPU yet; otherwise that was
 * not observed.
 */
static __always_inline void woken_without_wait(struct off_wait *wait, struct task_struct *p)
{
	wait->note.woken = true;
	if (wait->since_ns == OFF_RUNS && !is_runnable(p) && off_thread_wanted(p))
		lost_add(unobserved);
}

/* Runs in the context of the waker, on any CPU. */
static __always_inline void handle_waking(void *ctx, struct task_struct *p)
{
	struct off_wait *wait = off_wait_find(p);
	struct table_key key = {};
	struct table_value *value;
	__u64 now_ns = bpf_ktime_get_ns(), ns;

	if (!first_waking_ns)
		first_waking_ns = now_ns;
	if (!wait)
		return;
	if (wait->since_ns <= OFF_RUNS) {
		woken_without_wait(wait, p);
		return;
	}
	ns = off_end(wait, now_ns);
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
	begin_wait(prev, preempt);
	end_wait(next);
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
	begin_wait(prev, preempt);
	end_wait(next);
	return 0;
}

SEC("raw_tp/sched_waking")
int BPF_PROG(wait__raw__waking, struct task_struct *p)
{
	handle_waking(ctx, p);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
