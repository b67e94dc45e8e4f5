// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "softirq.bpf.h"

/* Only times of at least this length, and only this CPU; -1 for all. */
const volatile __u64 targ_min_ns = 10000000;
const volatile __s32 targ_cpu = -1;

enum stage {
	STAGE_RAISED, /* from the raise to the begin */
	STAGE_RUN, /* from the begin to the end */
};

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u32 vec;
	__u32 cpu;
	enum stage stage;
	__u32 pad;
};

/* Keep the types in the BTF of the object, for comparison with the Go types. */
const struct event *event_type __attribute__((unused));
const enum stage *stage_type __attribute__((unused));

static __always_inline void report(void *ctx, __u32 vec, enum stage stage, __u64 ns)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct event e = {};

	if (ns < targ_min_ns || (targ_cpu >= 0 && cpu != targ_cpu) || !task_current_wanted())
		return;
	e.delta_ns = ns;
	e.vec = vec;
	e.cpu = cpu;
	e.stage = stage;
	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

static __always_inline void softirq_begun(void *ctx, __u32 vec, struct softirq_run *run)
{
	__u64 raised_ns = run->raised_ns;

	run->raised_ns = 0;
	if (raised_ns)
		report(ctx, vec, STAGE_RAISED, bpf_ktime_get_ns() - raised_ns);
}

static __always_inline void softirq_ended(void *ctx, __u32 vec, struct softirq_run *run, __u64 ns)
{
	report(ctx, vec, STAGE_RUN, ns);
}

/* A softirq that is raised again before it begins is still raised since the first time. */
static __always_inline int handle_raise(__u32 vec)
{
	struct softirq_run *run = softirq_run_of(vec);

	if (run && !run->raised_ns)
		run->raised_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_raise")
int BPF_PROG(raise__btf, unsigned int vec)
{
	return handle_raise(vec);
}

SEC("raw_tp/softirq_raise")
int BPF_PROG(raise__raw, unsigned int vec)
{
	return handle_raise(vec);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
