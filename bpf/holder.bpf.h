/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __HOLDER_BPF_H
#define __HOLDER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "lost.bpf.h"

/* What the threads of a process share, such as their table of files or their memory. */
struct holding {
	const void *what;
	__u32 pid;
	__u32 pad;
};

struct teller {
	__u32 tid;
	__u32 round;
};

/* Tools that go through all threads again and again count the times. */
__u32 holder_round;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 14);
	__type(key, struct holding);
	__type(value, struct teller);
} holdings SEC(".maps");

/*
 * holds tells whether an iterator is to tell of what at this thread: each process tells of
 * it once. That is its first thread, or where that has ended, or has another, the first
 * one that has it. The iterators of files and memory skip threads that share the first
 * one's files; then all threads are left of a process whose first one has ended.
 */
static __always_inline bool holds(struct task_struct *task, const void *what, const void *firsts)
{
	struct teller me = { .round = holder_round }, *teller;
	struct holding key = { .what = what };

	key.pid = BPF_CORE_READ(task, tgid);
	me.tid = BPF_CORE_READ(task, pid);
	if (!what)
		return false;
	if (me.tid == key.pid)
		return true;
	if (what == firsts)
		return false;
	bpf_map_update_elem(&holdings, &key, &me, BPF_NOEXIST);
	teller = bpf_map_lookup_elem(&holdings, &key);
	if (!teller) {
		lost_add(map_full);
		return false;
	}
	if (teller->round != me.round)
		*teller = me;
	return teller->tid == me.tid;
}

#endif
