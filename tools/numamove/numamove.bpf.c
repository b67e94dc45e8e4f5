// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "arg.bpf.h"
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "task.bpf.h"

/* Only migrations with this reason (enum migrate_reason), -1 for all. */
const volatile __s32 targ_reason = 0;

struct totals {
	__u64 migrations;
	__u64 ns;
	__u64 pages;
	__u64 failed;
};

#include "totals.bpf.h"

struct counters {
	__u64 in_progress; /* migrations that had not ended at the end of the run */
	__u64 no_begin; /* migrations without a duration, because they began before the run */
};

#include "counters.bpf.h"

/* CLOCK_MONOTONIC at the start of a migration. Preallocated: memory can be short. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* thread */
	__type(value, __u64);
} begins SEC(".maps");

/* The start of a migration was observed: not all kernels have its tracepoint. */
bool has_begin;

static __always_inline int handle_begin(__s32 reason)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 now_ns = bpf_ktime_get_ns();

	has_begin = true;
	if ((targ_reason >= 0 && reason != targ_reason) || !task_current_wanted())
		return 0;
	if (bpf_map_update_elem(&begins, &tid, &now_ns, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int handle_end(__u64 pages, __u64 failed, __s32 reason)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 now_ns = bpf_ktime_get_ns(), *begin;

	if ((targ_reason >= 0 && reason != targ_reason) || !task_current_wanted())
		return 0;
	begin = bpf_map_lookup_elem(&begins, &tid);
	if (begin) {
		totals_add(ns, now_ns - *begin);
		bpf_map_delete_elem(&begins, &tid);
	} else if (has_begin) {
		counter_add(no_begin);
	}
	totals_add(migrations, 1);
	totals_add(pages, pages);
	totals_add(failed, failed);
	return 0;
}

SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	if (ctx->key && ctx->value)
		counter_add(in_progress);
	return 0;
}

/* The number of folios that were split, before the reason, is passed from 6.7 on (49cac03a8f0a). */
typedef void (*btf_trace_mm_migrate_pages___old)(void *, unsigned long, unsigned long,
						 unsigned long, unsigned long, unsigned long,
						 enum migrate_mode, int);

static __always_inline __s32 reason_of(__u64 *ctx)
{
	return trace_arg(ctx, bpf_core_type_exists(btf_trace_mm_migrate_pages___old) ? 6 : 7);
}

#define PROGRAMS(kind, section)                                                          \
	SEC(section "/mm_migrate_pages")                                                 \
	int migrate__##kind(__u64 *ctx)                                                  \
	{                                                                                \
		return NOT_PREEMPTED(handle_end(ctx[0], ctx[1], reason_of(ctx)));        \
	}                                                                                \
	SEC(section "/mm_migrate_pages_start")                                           \
	int begin__##kind(__u64 *ctx)                                                    \
	{                                                                                \
		return NOT_PREEMPTED(handle_begin(ctx[1]));                              \
	}

PROGRAMS(btf, "tp_btf")
PROGRAMS(raw, "raw_tp")

char LICENSE[] SEC("license") = "Dual BSD/GPL";
