/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __HOLDER_BPF_H
#define __HOLDER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "lost.bpf.h"

/* A resource that threads of a process share, such as a file table or memory. */
struct shared_resource {
	const void *resource;
	__u32 pid;
	__u32 pad;
};

struct reporter {
	__u32 tid;
	__u32 round;
};

/* Incremented by tools that iterate over all threads several times, at the start of each iteration. */
__u32 holder_round;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 14);
	__type(key, struct shared_resource);
	__type(value, struct reporter);
} reporters SEC(".maps");

/*
 * Reports whether an iterator is to report the resource at this thread, so that each process
 * reports it once: at the thread-group leader or, if that has exited or has another resource, at
 * the first thread that has this one. The iterators over files and memory skip threads that share
 * the file table of the leader; if the leader has exited, they visit all threads.
 */
static __always_inline bool reports_resource(struct task_struct *task, const void *resource,
					     const void *leader_resource)
{
	struct reporter me = { .round = holder_round }, *reporter;
	struct shared_resource key = { .resource = resource };

	key.pid = BPF_CORE_READ(task, tgid);
	me.tid = BPF_CORE_READ(task, pid);
	if (!resource)
		return false;
	if (me.tid == key.pid)
		return true;
	if (resource == leader_resource)
		return false;
	bpf_map_update_elem(&reporters, &key, &me, BPF_NOEXIST);
	reporter = bpf_map_lookup_elem(&reporters, &key);
	if (!reporter) {
		lost_add(map_full);
		return false;
	}
	if (reporter->round != me.round)
		*reporter = me;
	return reporter->tid == me.tid;
}

#endif
