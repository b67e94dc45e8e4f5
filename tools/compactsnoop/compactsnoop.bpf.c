// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "arg.bpf.h"
#include "compat.bpf.h"
#include "event.bpf.h"
#include "observing.bpf.h"
#include "stack.bpf.h"
#include "task.bpf.h"

#define ZONE_NAME_LEN 16
#define ORDERS_MAX 14
#define NO_FRAGMENTATION_INDEX -2000

const volatile bool want_stack = false;

/* A zone at the start of a compaction; pages. */
struct zone_state {
	__s32 node;
	__s32 order;
	__s32 fragmentation; /* thousandths */
	char name[ZONE_NAME_LEN];
	__u32 pad;
	__u64 min;
	__u64 low;
	__u64 high;
	__u64 free;
};

struct event {
	struct task_info task;
	__u64 duration_ns;
	struct zone_state zone;
	__u32 result; /* enum compact_result */
	__u32 sync;
	__u32 stack_len;
	__u32 pad;
	char stack[STACK_BYTES];
};

struct counters {
	__u64 in_progress; /* compactions that had not ended at the end of the run */
	__u64 unseen_begins; /* compactions that began before the run */
};

#include "counters.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

/* A compaction that has not ended. Preallocated: memory is short. */
struct compaction {
	__u64 begin_ns; /* CLOCK_MONOTONIC */
	struct zone_state zone;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* thread */
	__type(value, struct compaction);
} compactions SEC(".maps");

/*
 * Before 5.18 (abd4349ff9b8) the tracepoints do not pass what is compacted. It is that of the
 * tracepoint mm_compaction_suitable that the same thread has hit last.
 */
typedef void (*btf_trace_mm_compaction_begin___control)(void *, struct compact_control *,
							unsigned long, unsigned long, bool);

#define HAS_CONTROL bpf_core_type_exists(btf_trace_mm_compaction_begin___control)

struct zone_note {
	struct zone *zone;
	__s32 order;
	__u32 pad;
};

/* Threads that compact nothing after that leave an entry, which is then evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* thread */
	__type(value, struct zone_note);
} zones SEC(".maps");

static __always_inline int handle_suitable(struct zone *zone, __s32 order)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct zone_note note = { .zone = zone, .order = order };

	if (!task_current_wanted())
		return 0;
	if (bpf_map_update_elem(&zones, &tid, &note, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/*
 * The index by which the kernel decides between compaction and reclaim, computed from the free
 * blocks as fragmentation_index() does: towards 1000 an allocation fails because of fragmentation,
 * towards 0 because of a lack of memory; at -1000 it succeeds.
 */
static __always_inline __s32 fragmentation(struct zone *zone, __s32 order)
{
	__u64 pages = 0, blocks = 0;

	if (order < 0 || order >= ORDERS_MAX)
		return NO_FRAGMENTATION_INDEX;
	for (int i = 0; i < ORDERS_MAX; i++) {
		struct free_area *area;
		__u64 n;

		if (i * bpf_core_type_size(struct free_area) >= bpf_core_field_size(zone->free_area))
			break;
		area = (void *)zone + bpf_core_field_offset(struct zone, free_area) +
		       i * bpf_core_type_size(struct free_area);
		n = BPF_CORE_READ(area, nr_free);
		if (n && i >= order)
			return -1000;
		blocks += n;
		pages += n << i;
	}
	if (!blocks)
		return 0;
	return 1000 - (1000 + (pages * 1000 >> order)) / blocks;
}

static __always_inline void read_zone(struct zone_state *state, struct zone *zone, __s32 order)
{
	__u64 boost;

	state->node = -1;
	state->order = order;
	state->fragmentation = NO_FRAGMENTATION_INDEX;
	if (!zone)
		return;
	boost = BPF_CORE_READ(zone, watermark_boost);
	state->node = BPF_CORE_READ(zone, zone_pgdat, node_id);
	state->fragmentation = fragmentation(zone, order);
	state->min = BPF_CORE_READ(zone, _watermark[WMARK_MIN]) + boost;
	state->low = BPF_CORE_READ(zone, _watermark[WMARK_LOW]) + boost;
	state->high = BPF_CORE_READ(zone, _watermark[WMARK_HIGH]) + boost;
	state->free = BPF_CORE_READ(zone, vm_stat[0].counter); /* NR_FREE_PAGES */
	bpf_probe_read_kernel_str(state->name, sizeof(state->name), BPF_CORE_READ(zone, name));
}

static __always_inline int handle_begin(__u64 *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct compaction compaction = {};
	struct compact_control *control;
	struct zone_note *note;

	if (!observing || !task_current_wanted())
		return 0;
	if (HAS_CONTROL) {
		control = (void *)trace_arg(ctx, 0);
		read_zone(&compaction.zone, BPF_CORE_READ(control, zone), BPF_CORE_READ(control, order));
	} else {
		note = bpf_map_lookup_elem(&zones, &tid);
		read_zone(&compaction.zone, note ? note->zone : NULL,
			  note ? note->order : -1);
	}
	if (bpf_map_lookup_elem(&compactions, &tid))
		lost_add(unobserved); /* the end of the previous one */
	compaction.begin_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&compactions, &tid, &compaction, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int handle_end(__u64 *ctx, __u32 sync, __u32 result)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 tid = bpf_get_current_pid_tgid(), zero = 0, len = 0;
	struct compaction *compaction = bpf_map_lookup_elem(&compactions, &tid);
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);

	if (!compaction || !e) {
		if (observing && task_current_wanted())
			counter_add(unseen_begins);
		return 0;
	}
	__builtin_memset(e, 0, offsetof(struct event, stack));
	task_info_current(&e->task);
	e->duration_ns = now_ns - compaction->begin_ns;
	e->zone = compaction->zone;
	e->sync = sync;
	e->result = result;
	bpf_map_delete_elem(&compactions, &tid);
	if (want_stack)
		len = stack_read(ctx, e->stack);
	e->stack_len = len;
	event_send(ctx, e, offsetof(struct event, stack) + len, e->task.time_ns);
	return 0;
}

SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	if (ctx->key && ctx->value)
		counter_add(in_progress);
	return 0;
}

#define PROGRAMS(kind, section)                                                               \
	SEC(section "/mm_compaction_begin")                                                   \
	int compact__##kind##__begin(__u64 *ctx)                                              \
	{                                                                                     \
		return NOT_PREEMPTED(handle_begin(ctx));                                      \
	}                                                                                     \
	SEC(section "/mm_compaction_end")                                                     \
	int compact__##kind##__end(__u64 *ctx)                                                \
	{                                                                                     \
		if (HAS_CONTROL)                                                              \
			return NOT_PREEMPTED(handle_end(ctx, (__u8)ctx[3], (__u32)ctx[4]));   \
		return NOT_PREEMPTED(handle_end(ctx, (__u8)ctx[4], (__u32)ctx[5]));           \
	}                                                                                     \
	SEC(section "/mm_compaction_suitable")                                                \
	int suitable__##kind(__u64 *ctx)                                                      \
	{                                                                                     \
		REJECT_IF_TYPE_EXISTS(btf_trace_mm_compaction_begin___control);               \
		return NOT_PREEMPTED(handle_suitable((void *)trace_arg(ctx, 0), (__s32)ctx[1]));    \
	}

PROGRAMS(btf, "tp_btf")
PROGRAMS(raw, "raw_tp")

char LICENSE[] SEC("license") = "Dual BSD/GPL";
