// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "stackwalk.bpf.h"
#include "task.bpf.h"

struct event {
	struct task_info task; /* the creator */
	__u64 routine; /* address of the function that the new thread executes */
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* An event, and a stack whose only frame is that function, which user space symbolizes. */
struct event_and_stack {
	struct event event;
	struct stack_head head;
	__u64 frame;
};

/* The event is on the stack, because programs of user functions can be preempted. */
SEC("uprobe/pthread:pthread_create")
int BPF_KPROBE(create__uprobe, void *thread, const void *attr, void *routine)
{
	struct event_and_stack s = { .event.routine = (__u64)routine, .frame = (__u64)routine };

	if (!task_current_wanted())
		return 0;
	task_info_current(&s.event.task);
	s.head.time_ns = bpf_ktime_get_ns();
	s.head.pid = user_stack_pid();
	s.head.space = stack_space(s.head.pid);
	s.head.frames = 1;
	event_send(ctx, &s, sizeof(s), s.event.task.time_ns);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
