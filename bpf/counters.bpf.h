/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __COUNTERS_BPF_H
#define __COUNTERS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * Counters of a tool's own, beside what is lost: retries, errors, values that
 * cannot be. The tool defines struct counters, all of __u64, before it includes
 * this; user space takes the names from its BTF and prints them in the summary.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

#define counter_add(name) counter_add_n(name, 1)

#define counter_add_n(name, n)                                                      \
	do {                                                                        \
		__u32 __zero = 0;                                                   \
		struct counters *__counters = bpf_map_lookup_elem(&counters, &__zero); \
		if (__counters)                                                     \
			__counters->name += (n);                                     \
	} while (0)

#endif
