// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"

/* Include new threads of a process. */
const volatile bool targ_threads = false;

/* One new task; the Go type of the same name has the same layout. */
struct event {
	struct task_info task; /* the parent */
	__u32 child_pid;
	__u32 child_tid;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline int handle_fork(void *ctx, struct task_struct *child)
{
	struct event e = {};

	if (!task_current_wanted())
		return 0;
	e.child_pid = BPF_CORE_READ(child, tgid);
	e.child_tid = BPF_CORE_READ(child, pid);
	if (!targ_threads && e.child_pid != e.child_tid)
		return 0;
	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

/* Two attach types for the hook "fork". The first one that the kernel supports is used. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(fork__btf, struct task_struct *parent, struct task_struct *child)
{
	return handle_fork(ctx, child);
}

SEC("raw_tp/sched_process_fork")
int BPF_PROG(fork__raw, struct task_struct *parent, struct task_struct *child)
{
	return handle_fork(ctx, child);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
