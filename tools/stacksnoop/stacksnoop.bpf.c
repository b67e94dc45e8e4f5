// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "event.bpf.h"
#include "stack.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

struct event {
	struct task_info task;
	__u32 target;
	__u32 cpu;
	__u32 stack_len;
	__u32 pad;
	char stack[STACK_BYTES];
};

const struct event *event_type __attribute__((unused));

struct scratch {
	struct event event;
};

#include "scratch.bpf.h"

static __always_inline int hit(void *ctx)
{
	struct scratch *s;
	struct event *e;

	if (!task_current_wanted())
		return 0;
	s = scratch_begin();
	if (!s)
		return 0;
	e = &s->event;
	task_info_current(&e->task);
	e->target = target_id(ctx);
	e->cpu = bpf_get_smp_processor_id();
	e->stack_len = stack_read(ctx, e->stack);
	event_send(ctx, e, offsetof(struct event, stack) + e->stack_len, e->task.time_ns);
	scratch_end();
	return 0;
}

TARGET_PROGRAM(kernel__multi, "kprobe.multi", false, hit(ctx))
TARGET_PROGRAM(kernel__kprobe, "kprobe", false, hit(ctx))
TARGET_PROGRAM(tracepoint__tp, "tracepoint", false, hit(ctx))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
