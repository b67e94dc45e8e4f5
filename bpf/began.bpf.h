/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BEGAN_BPF_H
#define __BEGAN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * What is known of a thread's system call from its entry. Events are sent when calls return, also
 * if the entry is missing: then only their latency is absent. So entries need no place where they
 * are deleted other than the return, and an insert that evicts another one loses no event.
 */
struct began {
	__u64 ns; /* CLOCK_MONOTONIC */
	struct file *file; /* of the descriptor, if the tool reads it */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32); /* thread */
	__type(value, struct began);
} began SEC(".maps");

static __always_inline void began_put(struct file *file)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct began b = { .ns = bpf_ktime_get_ns(), .file = file };

	bpf_map_update_elem(&began, &tid, &b, BPF_ANY);
}

/* began_take removes the entry of the current thread, and returns false if there is none. */
static __always_inline bool began_take(struct began *b)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct began *entry = bpf_map_lookup_elem(&began, &tid);

	if (!entry)
		return false;
	*b = *entry;
	bpf_map_delete_elem(&began, &tid);
	return true;
}

#endif
