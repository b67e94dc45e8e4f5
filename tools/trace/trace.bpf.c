// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "fetch.bpf.h"
#include "stack.bpf.h"
#include "stackwalk.bpf.h"
#include "mark.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

/* Number of bytes of data used in this run, a multiple of 8. */
const volatile __u32 trace_size = 8;

/* The process to leave out, or 0. */
const volatile __u32 trace_not_pid = 0;

const volatile bool want_kernel_stack = false;
const volatile bool want_user_stack = false;
/* User attach points are at the first instruction of functions. */
const volatile bool at_entry = false;

/* The used part of data is followed by the two stacks. */
struct event {
	struct task_info task;
	__u32 target;
	__u32 cpu;
	__u32 kernel_len;
	__u32 user_len;
	char data[FETCH_DATA_MAX];
};

const struct event *event_type __attribute__((unused));

struct scratch {
	struct event event;
	char stacks[STACK_BYTES + STACK_MAX_BYTES];
};

#include "scratch.bpf.h"

/* fill reports whether the hit is wanted. */
static __always_inline bool fill(void *ctx, struct event *e)
{
	if (!fetch_wanted(ctx, e->data))
		return false;
	task_info_current(&e->task);
	e->target = target_id(ctx);
	e->cpu = bpf_get_smp_processor_id();
	return true;
}

/*
 * A program and the functions that it calls share 512 bytes of stack. The event is in a separate
 * function, because it does not fit together with the frames of the functions that unwind stacks.
 */
static __noinline int hit_alone(void *ctx)
{
	struct event e = {};
	__u32 size = trace_size;

	if (size <= FETCH_DATA_MAX && fill(ctx, &e))
		event_send(ctx, &e, offsetof(struct event, data) + size, e.task.time_ns);
	return 0;
}

static __always_inline void hit_with_stacks(void *ctx, bool entry, bool kernel)
{
	__u32 size = offsetof(struct event, data) + trace_size;
	__u32 kind = kernel ? SCRATCH_KERNEL : 0;
	struct scratch *s = scratch_begin_for(kind);

	if (!s)
		return;
	if (size <= sizeof(struct event) && fill(ctx, &s->event)) {
		if (want_kernel_stack)
			size += s->event.kernel_len = stack_read(ctx, (void *)s + size);
		if (want_user_stack)
			size += s->event.user_len = user_stack_read(ctx, (void *)s + size,
								    entry ? user_caller_at_entry(ctx) : 0);
		event_send(ctx, s, size, s->event.task.time_ns);
	}
	scratch_end_for(kind);
}

static __always_inline int hit(void *ctx, bool entry, bool kernel)
{
	if (trace_not_pid && task_local_pid(task_current()) == trace_not_pid)
		return 0;
	if (!task_current_wanted())
		return 0;
	if (want_kernel_stack || want_user_stack)
		hit_with_stacks(ctx, entry, kernel);
	else
		hit_alone(ctx);
	return 0;
}

TARGET_PROGRAMS(hit(ctx, user_entry &&at_entry, kernel))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
