/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SCRATCH_BPF_H
#define __SCRATCH_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lost.bpf.h"

/*
 * Memory for an event that does not fit on the stack, in programs of user functions. From 6.0 on
 * (8c7dcb84e3b7) these can be preempted, and run for another thread on the same CPU meanwhile, so
 * the memory is per thread instead of per CPU. The tool defines struct scratch before it includes
 * this header. Only threads that are in a program have an entry.
 *
 * A program of a kernel function can interrupt one of a user function in the same thread. A tool with
 * both uses two entries: that of SCRATCH_KERNEL is for the former, of which one runs at a time. A
 * program of a raw tracepoint in interrupts cannot use one: before 6.2 (05b24ff9b2cf) it can
 * interrupt itself.
 */
#define SCRATCH_KERNEL (1U << 31) /* above all thread IDs */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32); /* thread, and SCRATCH_KERNEL */
	__type(value, struct scratch);
} scratches SEC(".maps");

/* Zero initializer of an entry, never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch_zero SEC(".maps");

/* scratch_begin_for returns zeroed memory, or NULL: then the event is lost. kind is 0 or SCRATCH_KERNEL. */
static __always_inline struct scratch *scratch_begin_for(__u32 kind)
{
	__u32 key = (__u32)bpf_get_current_pid_tgid() | kind, zero = 0;
	struct scratch *none = bpf_map_lookup_elem(&scratch_zero, &zero), *s;

	if (!none)
		return NULL;
	bpf_map_update_elem(&scratches, &key, none, BPF_ANY);
	s = bpf_map_lookup_elem(&scratches, &key);
	if (!s)
		lost_add(map_full);
	return s;
}

static __always_inline void scratch_end_for(__u32 kind)
{
	__u32 key = (__u32)bpf_get_current_pid_tgid() | kind;

	bpf_map_delete_elem(&scratches, &key);
}

static __always_inline struct scratch *scratch_begin(void)
{
	return scratch_begin_for(0);
}

static __always_inline void scratch_end(void)
{
	scratch_end_for(0);
}

#endif
