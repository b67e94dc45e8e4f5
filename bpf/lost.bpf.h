/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __LOST_BPF_H
#define __LOST_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * What could not be told to user space, by reason. User space takes the reasons'
 * names from the BTF of this struct, so a new field needs no line of Go.
 */
struct lost {
	__u64 buffer_full; /* an event did not fit into the ring or perf buffer */
	__u64 map_full; /* a map had no room for the state or count of an event */
	__u64 program_busy; /* the program was running on the CPU already; user space adds what the kernel counts */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost);
} lost SEC(".maps");

/* lost_add(buffer_full) counts one loss on this CPU. */
#define lost_add(reason)                                                \
	do {                                                            \
		__u32 __zero = 0;                                       \
		struct lost *__lost = bpf_map_lookup_elem(&lost, &__zero); \
		if (__lost)                                             \
			__lost->reason++;                               \
	} while (0)

#endif
