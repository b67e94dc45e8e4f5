// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "memcg.bpf.h"
#include "observing.bpf.h"
#include "task.bpf.h"

const volatile bool want_free = false;

/* User space uses these numbers. */
enum reclaim_kind {
	RECLAIM_SYSTEM,
	RECLAIM_CGROUP,
	RECLAIM_KINDS
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum reclaim_kind *reclaim_kind_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 duration_ns;
	__u64 reclaimed;
	__u64 free;
	__s32 order;
	__u32 kind;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

struct counters {
	__u64 in_progress; /* reclaims that had not ended at the end of the run */
	__u64 unseen_begins; /* reclaims that began before the run */
};

#include "counters.bpf.h"

/* A reclaim that has not ended. Preallocated: memory is short. */
struct reclaim {
	__u64 begin_ns; /* CLOCK_MONOTONIC */
	__u64 free;
	__s32 order;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* thread and kind */
	__type(value, struct reclaim);
} reclaims SEC(".maps");

/* From 7.1 on the order is the second argument. */
typedef void (*btf_trace_mm_vmscan_direct_reclaim_begin___memcg)(void *, gfp_t, int,
								 struct mem_cgroup *);

static __always_inline __u64 reclaim_key(enum reclaim_kind kind)
{
	return (bpf_get_current_pid_tgid() << 32) | kind;
}

static __always_inline int reclaim_begin(__u64 *ctx, enum reclaim_kind kind)
{
	struct reclaim reclaim = { .begin_ns = bpf_ktime_get_ns() };
	__u64 key = reclaim_key(kind);

	if (!observing || !task_current_wanted())
		return 0;
	if (bpf_core_type_exists(btf_trace_mm_vmscan_direct_reclaim_begin___memcg))
		reclaim.order = ctx[1];
	else
		reclaim.order = ctx[0];
	if (want_free)
		reclaim.free = free_pages(task_memcg(task_current()));
	if (bpf_map_lookup_elem(&reclaims, &key))
		lost_add(unobserved); /* the end of the previous one */
	if (bpf_map_update_elem(&reclaims, &key, &reclaim, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int reclaim_end(void *ctx, __u64 reclaimed, enum reclaim_kind kind)
{
	__u64 key = reclaim_key(kind), now_ns = bpf_ktime_get_ns();
	struct reclaim *reclaim = bpf_map_lookup_elem(&reclaims, &key);
	struct event e = { .reclaimed = reclaimed, .kind = kind };

	if (!reclaim) {
		if (observing && task_current_wanted())
			counter_add(unseen_begins);
		return 0;
	}
	task_info_current(&e.task);
	e.duration_ns = now_ns - reclaim->begin_ns;
	e.free = reclaim->free;
	e.order = reclaim->order;
	bpf_map_delete_elem(&reclaims, &key);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	if (ctx->key && ctx->value)
		counter_add(in_progress);
	return 0;
}

#define RECLAIM(hook, attach, section, kind)                           \
	SEC(section "/mm_vmscan_" #hook "_reclaim_begin")              \
	int hook##__##attach##__begin(__u64 *ctx)                      \
	{                                                              \
		return NOT_PREEMPTED(reclaim_begin(ctx, kind));        \
	}                                                              \
	SEC(section "/mm_vmscan_" #hook "_reclaim_end")                \
	int hook##__##attach##__end(__u64 *ctx)                        \
	{                                                              \
		return NOT_PREEMPTED(reclaim_end(ctx, ctx[0], kind));  \
	}

RECLAIM(direct, btf, "tp_btf", RECLAIM_SYSTEM)
RECLAIM(direct, raw, "raw_tp", RECLAIM_SYSTEM)
RECLAIM(memcg, btf, "tp_btf", RECLAIM_CGROUP)
RECLAIM(memcg, raw, "raw_tp", RECLAIM_CGROUP)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
