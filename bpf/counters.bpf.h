/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __COUNTERS_BPF_H
#define __COUNTERS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "map.bpf.h"

/*
 * Counters of the tool that are not losses: retries, errors, impossible values. The tool defines
 * struct counters, with members of type __u64, before it includes this header. User space reads the
 * names of the members from BTF and prints the counters in the summary.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps") USER_SPACE;

#define counter_add(name) counter_add_n(name, 1)

/*
 * Atomic, because a program can be interrupted or preempted by another one that adds to the same
 * counter.
 */
#define counter_add_n(name, n)                                                      \
	do {                                                                        \
		__u32 __zero = 0;                                                   \
		struct counters *__counters = bpf_map_lookup_elem(&counters, &__zero); \
		if (__counters)                                                     \
			__sync_fetch_and_add(&__counters->name, (n));                \
	} while (0)

#endif
