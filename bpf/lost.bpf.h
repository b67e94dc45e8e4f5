/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __LOST_BPF_H
#define __LOST_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "map.bpf.h"

/*
 * Events that happened and are missing from the output, by loss reason. User space reads the names
 * of the reasons from the BTF of this struct, so a new member needs no change in Go.
 */
struct lost {
	__u64 buffer_full; /* the ring buffer or perf buffer was full */
	__u64 map_full; /* a map for the state or the count of an event was full */
	__u64 program_busy; /* the program was already running on the CPU; user space adds the kernel's counts */
	__u64 condition_unread; /* memory that a condition of the user needs could not be read */
	/*
	 * no program ran for the event, or for its start or end; inferred from other observations
	 */
	__u64 unobserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost);
} lost SEC(".maps") USER_SPACE;

/*
 * lost_add(buffer_full) counts one lost event on this CPU. The addition is atomic, because a
 * program can be interrupted or preempted by another one that adds to the same counter.
 */
#define lost_add(reason) lost_add_n(reason, 1)

#define lost_add_n(reason, n)                                           \
	do {                                                            \
		__u32 __zero = 0;                                       \
		struct lost *__lost = bpf_map_lookup_elem(&lost, &__zero); \
		if (__lost)                                             \
			__sync_fetch_and_add(&__lost->reason, (n));     \
	} while (0)

#endif
