// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "fetch.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

/* How much of data is of use in this run, a multiple of 8. */
const volatile __u32 trace_size = 8;

/* The process that is left out, or 0. */
const volatile __u32 trace_not_pid = 0;

struct event {
	struct task_info task;
	__u32 target;
	__u32 cpu;
	char data[FETCH_DATA_MAX];
};

const struct event *event_type __attribute__((unused));

static __always_inline int hit(void *ctx)
{
	struct event e = {};
	__u32 size = trace_size;

	if (trace_not_pid && bpf_get_current_pid_tgid() >> 32 == trace_not_pid)
		return 0;
	if (!task_current_wanted() || !fetch(ctx, e.data))
		return 0;
	task_info_current(&e.task);
	e.target = target_id(ctx);
	e.cpu = bpf_get_smp_processor_id();
	if (size <= FETCH_DATA_MAX)
		event_send(ctx, &e, offsetof(struct event, data) + size, e.task.time_ns);
	return 0;
}

#define HIT(name, section)               \
	SEC(section)                     \
	int name(void *ctx)              \
	{                                \
		return hit(ctx);         \
	}

HIT(kernel__multi, "kprobe.multi")
HIT(kernel__kprobe, "kprobe")
HIT(kernel_return__multi, "kretprobe.multi")
HIT(kernel_return__kprobe, "kretprobe")
HIT(user__multi, "uprobe.multi")
HIT(user__uprobe, "uprobe")
HIT(user_return__multi, "uretprobe.multi")
HIT(user_return__uprobe, "uretprobe")
HIT(tracepoint__tp, "tracepoint")

char LICENSE[] SEC("license") = "Dual BSD/GPL";
