// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.bpf.h"
#include "schedwait.bpf.h"
#include "task.bpf.h"

/* Only waits of at least this length. */
const volatile __u64 targ_min_ns = 10000000;

struct event {
	struct task_info task; /* that waited */
	__u64 latency_ns;
	__u32 cpu; /* that the task runs on after the wait */
	__u32 prev_pid; /* the task that used this CPU until then */
	__u32 prev_tid;
	__u32 preempted;
	char prev_comm[TASK_COMM_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline void sched_wait_ended(void *ctx, struct task_struct *prev,
					     struct task_struct *next,
					     const struct sched_wait *wait)
{
	struct event e = {};

	if (wait->ns < targ_min_ns)
		return;
	task_info_read(&e.task, next);
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.latency_ns = wait->ns;
	e.cpu = bpf_get_smp_processor_id();
	e.prev_pid = BPF_CORE_READ(prev, tgid);
	e.prev_tid = BPF_CORE_READ(prev, pid);
	e.preempted = wait->preempted;
	BPF_CORE_READ_STR_INTO(&e.prev_comm, prev, comm);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
