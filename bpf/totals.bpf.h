/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TOTALS_BPF_H
#define __TOTALS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "epoch.bpf.h"
#include "map.bpf.h"

/*
 * A table with a single row: counters of an interval without a key. The tool defines struct totals,
 * with members of type __u64, before it includes this header.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* by epoch */
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps") USER_SPACE;

/* totals_add(member, n): atomic, because a program can be interrupted by another one. */
#define totals_add(member, n)                                               \
	do {                                                                \
		__u32 __epoch = count_epoch;                                \
		struct totals *__totals = bpf_map_lookup_elem(&totals, &__epoch); \
		if (__totals)                                               \
			__sync_fetch_and_add(&__totals->member, (n));       \
	} while (0)

#endif
