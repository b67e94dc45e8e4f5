// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "language.bpf.h"
#include "task.bpf.h"

/* Only rows of at least this time. */
const volatile __u64 targ_min_ns = 0;

enum phase {
	COLLECTION = 1,
	MARK,
	SWEEP,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum phase *phase_type __attribute__((unused));

/* A collection, or a phase of one, in progress. */
struct call {
	__u64 start_ns;
	__u64 what;
};

#include "usercall.bpf.h"

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u64 what; /* argument of the begin: Java: full; Node: V8_YOUNG, V8_FULL; Python: generation */
	__s64 collected; /* argument of the end: Python: number of objects */
	__u32 language;
	__u32 phase;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* Phases that USDT probes begin are identified by their number, in place of a frame. */
static __always_inline int gc_begin(enum phase phase, __u64 what)
{
	struct call *call;

	if (!task_current_wanted())
		return 0;
	call = call_begin(phase);
	if (!call)
		return 0;
	call->start_ns = bpf_ktime_get_boot_ns();
	call->what = what;
	counter_add(no_return);
	return 0;
}

static __always_inline int gc_send(void *ctx, const struct call *call, enum language language, enum phase phase,
				   __s64 collected)
{
	struct event e = { .what = call->what, .collected = collected, .language = language, .phase = phase };

	task_info_current(&e.task);
	e.delta_ns = e.task.time_ns - call->start_ns;
	if (e.delta_ns >= targ_min_ns)
		event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

static __always_inline int gc_end(void *ctx, enum language language, enum phase phase, __s64 collected)
{
	struct call call;
	bool nested;

	if (call_end(phase, &call, &nested)) {
		counter_add_n(no_return, -1);
		return gc_send(ctx, &call, language, phase, collected);
	}
	if (task_current_wanted())
		counter_add(unseen_calls);
	return 0;
}

SEC("usdt/java:hotspot:gc__begin")
int java__usdt__begin(struct pt_regs *ctx)
{
	return gc_begin(COLLECTION, language_number(ctx, 0));
}

SEC("usdt/java:hotspot:gc__end")
int java__usdt__end(struct pt_regs *ctx)
{
	return gc_end(ctx, LANGUAGE_JAVA, COLLECTION, 0);
}

SEC("usdt/python:python:gc__start")
int python__usdt__begin(struct pt_regs *ctx)
{
	return gc_begin(COLLECTION, language_number(ctx, 0));
}

SEC("usdt/python:python:gc__done")
int python__usdt__end(struct pt_regs *ctx)
{
	return gc_end(ctx, LANGUAGE_PYTHON, COLLECTION, language_number(ctx, 0));
}

SEC("usdt/ruby:ruby:gc__mark__begin")
int ruby__usdt__mark_begin(struct pt_regs *ctx)
{
	return gc_begin(MARK, 0);
}

SEC("usdt/ruby:ruby:gc__mark__end")
int ruby__usdt__mark_end(struct pt_regs *ctx)
{
	return gc_end(ctx, LANGUAGE_RUBY, MARK, 0);
}

SEC("usdt/ruby:ruby:gc__sweep__begin")
int ruby__usdt__sweep_begin(struct pt_regs *ctx)
{
	return gc_begin(SWEEP, 0);
}

SEC("usdt/ruby:ruby:gc__sweep__end")
int ruby__usdt__sweep_end(struct pt_regs *ctx)
{
	return gc_end(ctx, LANGUAGE_RUBY, SWEEP, 0);
}

SEC("uprobe/node:" V8_COLLECT_GARBAGE)
int node__uprobe__begin(struct pt_regs *ctx)
{
	struct call *call;

	if (!observing || !task_current_wanted())
		return 0;
	call = user_call_begin(ctx);
	if (call) {
		call->start_ns = bpf_ktime_get_boot_ns();
		call->what = 0;
	}
	return 0;
}

/*
 * What is collected. The argument of CollectGarbage() is the space that needs memory, whose number depends
 * on the version.
 */
#define V8_HEAP "_ZN2v88internal4Heap"
#define V8_YOUNG 1
#define V8_FULL 2

static __always_inline int gc_collects(__u64 what)
{
	struct calls *all = calls_find(bpf_get_current_pid_tgid());

	for (int i = 0; all && i < CALL_DEPTH_MAX; i++)
		if (all->frame[i])
			all->call[i].what |= what;
	return 0;
}

SEC("uprobe/node:" V8_HEAP "8ScavengeEv," V8_HEAP "16MinorMarkCompactEv," V8_HEAP "14MinorMarkSweepEv")
int node__uprobe__young(void *ctx)
{
	return gc_collects(V8_YOUNG);
}

SEC("uprobe/node:" V8_HEAP "11MarkCompactEv")
int node__uprobe__full(void *ctx)
{
	return gc_collects(V8_FULL);
}

SEC("uretprobe/node:" V8_COLLECT_GARBAGE)
int node__uprobe__end(struct pt_regs *ctx)
{
	struct call call;
	bool nested;

	/* A collection within another one is a part of it. */
	if (user_call_end(ctx, &call, &nested) && !nested)
		gc_send(ctx, &call, LANGUAGE_NODE, COLLECTION, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
