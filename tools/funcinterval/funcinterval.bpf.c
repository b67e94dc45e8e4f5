// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"
#include "map.bpf.h"
#include "mark.bpf.h"
#include "observing.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

struct counters {
	__u64 first; /* first calls of a function: no interval ends with them */
	__u64 simultaneous; /* calls while the program ran for a call on another CPU; they are left out */
};

#include "counters.bpf.h"

/* Group histograms by function. */
const volatile bool by_func = false;

struct hist_key {
	__u32 target;
};

#include "hist.bpf.h"

/* The time of the last call of each target: CLOCK_MONOTONIC, 0 before the first. User space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_calls SEC(".maps");

/*
 * The targets whose last call a CPU is replacing. Programs cannot exchange a value atomically before
 * 5.12 (5ffa25502b5a), but only one of them succeeds in adding a key.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} replacing SEC(".maps");

/* replace makes now_ns the time of the last call, and returns the time before, or 0 if there is none. */
static __always_inline __u64 replace(__u32 target, __u64 now_ns)
{
	__u64 *last = bpf_map_lookup_elem(&last_calls, &target), begin_ns;

	if (!last)
		return 0;
	begin_ns = *last;
	*last = now_ns;
	if (!begin_ns)
		counter_add(first);
	return begin_ns;
}

static __always_inline int hit(void *ctx)
{
	struct hist_key key = {};
	__u64 now_ns, begin_ns;
	__u8 one = 1;
	__u32 target;
	long err;

	if (!observing || !task_current_wanted())
		return 0;
	target = target_id(ctx);
	err = bpf_map_update_elem(&replacing, &target, &one, BPF_NOEXIST);
	if (err) {
		if (map_has_key(err))
			counter_add(simultaneous);
		else
			lost_add(map_full);
		return 0;
	}
	now_ns = bpf_ktime_get_ns();
	begin_ns = replace(target, now_ns);
	bpf_map_delete_elem(&replacing, &target);
	if (!begin_ns)
		return 0;
	if (by_func)
		key.target = target;
	/* The clocks of two CPUs can differ by some nanoseconds. */
	hist_record(&key, now_ns > begin_ns ? now_ns - begin_ns : 0);
	return 0;
}

TARGET_PROGRAMS(hit(ctx))
TARGET_PROGRAM_RAW(hit(ctx))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
