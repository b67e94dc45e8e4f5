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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 14);
	__type(key, struct holding);
	__type(value, __u32); /* the thread that tells of it */
} holdings SEC(".maps");

/*
 * holds tells whether an iterator is to tell of what at this thread: each process tells of
 * it once. That is its first thread, or where that has ended, or has another, the first
 * one that has it. The iterators of files and memory skip threads that share the first
 * one's files; then all threads are left of a process whose first one has ended.
 */
static __always_inline bool holds(struct task_struct *task, const void *what, const void *firsts)
{
	struct holding key = { .what = what };
	__u32 tid = BPF_CORE_READ(task, pid), *teller;

	key.pid = BPF_CORE_READ(task, tgid);
	if (!what)
		return false;
	if (tid == key.pid)
		return true;
	if (what == firsts)
		return false;
	bpf_map_update_elem(&holdings, &key, &tid, BPF_NOEXIST);
	teller = bpf_map_lookup_elem(&holdings, &key);
	if (!teller)
		lost_add(map_full);
	return teller && *teller == tid;
}

#endif
