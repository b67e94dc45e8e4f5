/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SOFTIRQ_BPF_H
#define __SOFTIRQ_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"
#include "task.bpf.h"

/* Softirqs: the hook "softirq". The tool defines softirq_begun() and softirq_ended(). */

#define SOFTIRQS_MAX 16 /* the kernel has 10 */

/* The state of a softirq on a CPU. Times are of CLOCK_MONOTONIC, 0 if there is none. */
struct softirq_run {
	__u64 raised_ns; /* first raise since it last began to run; set by the tool */
	__u64 begin_ns; /* it runs since */
	__u64 irq_ns; /* time in interrupt handlers before it began; set by the tool */
	__u64 task; /* that it runs in */
	__u32 begun; /* a begin was observed */
	/*
	 * Runs whose end, or begin, was not observed. Programs are detached one after the other,
	 * so these are lost only if another end, or begin, is observed later.
	 */
	__u32 no_end;
	__u32 no_begin;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SOFTIRQS_MAX);
	__type(key, __u32);
	__type(value, struct softirq_run);
} softirq_runs SEC(".maps");

/* Called before the softirq runs. */
static __always_inline void softirq_begun(void *ctx, __u32 vec, struct softirq_run *run);

/* Called after it has run for that time. */
static __always_inline void softirq_ended(void *ctx, __u32 vec, struct softirq_run *run, __u64 ns);

static __always_inline struct softirq_run *softirq_run_of(__u32 vec)
{
	struct softirq_run *run = bpf_map_lookup_elem(&softirq_runs, &vec);

	if (!run)
		lost_add(map_full);
	return run;
}

/*
 * With PREEMPT_RT, from 6.18 on (3253cb49cbad), another task can run the same softirq on the CPU
 * while the first one is preempted. The end of the first one is then lost.
 */
static __always_inline int softirq_begin(void *ctx, __u32 vec)
{
	struct softirq_run *run = softirq_run_of(vec);
	__u64 task = bpf_get_current_task();

	if (!run)
		return 0;
	if (run->no_begin)
		lost_add_n(unobserved, run->no_begin);
	run->no_begin = 0;
	if (run->begin_ns && run->task == task)
		run->no_end++;
	run->begun = true;
	run->task = task;
	softirq_begun(ctx, vec, run);
	run->begin_ns = bpf_ktime_get_ns();
	return 0;
}

/* The end of a softirq that began before the first observed begin is not a loss. */
static __always_inline int softirq_end(void *ctx, __u32 vec)
{
	__u64 now_ns = bpf_ktime_get_ns(), begin_ns;
	struct softirq_run *run = softirq_run_of(vec);

	if (!run || !run->begun)
		return 0;
	if (run->no_end)
		lost_add_n(unobserved, run->no_end);
	run->no_end = 0;
	if (!run->begin_ns || run->task != bpf_get_current_task()) {
		run->no_begin++;
		return 0;
	}
	begin_ns = run->begin_ns;
	run->begin_ns = 0;
	softirq_ended(ctx, vec, run, now_ns - begin_ns);
	return 0;
}

/* Attached in alphabetical order, so that the end of each observed begin is observed. */
SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq__btf__done, unsigned int vec)
{
	return softirq_end(ctx, vec);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq__btf__start, unsigned int vec)
{
	return softirq_begin(ctx, vec);
}

SEC("raw_tp/softirq_exit")
int BPF_PROG(softirq__raw__done, unsigned int vec)
{
	return softirq_end(ctx, vec);
}

SEC("raw_tp/softirq_entry")
int BPF_PROG(softirq__raw__start, unsigned int vec)
{
	return softirq_begin(ctx, vec);
}

#endif
