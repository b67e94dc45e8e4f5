/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __OWNERS_BPF_H
#define __OWNERS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lost.bpf.h"
#include "task.bpf.h"

/* The holders of kernel objects, found by an iterator over open files. */

/* Maximum number of objects, if the tool does not define it. */
#ifndef OWNERS_MAX
#define OWNERS_MAX (1 << 16)
#endif

/* The first holder of an object that the task filter selects, and the number of all holders. */
struct owner {
	struct task_info task; /* pid 0 until a holder is found */
	__u32 fd;
	__u32 holders;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, OWNERS_MAX);
	__type(key, const void *);
	__type(value, struct owner);
} owners SEC(".maps");

/* Adds a task that holds the object by a file descriptor. */
static __always_inline void owner_add(const void *object, struct task_struct *task, __u32 fd)
{
	struct owner none = {}, *owner;

	bpf_map_update_elem(&owners, &object, &none, BPF_NOEXIST);
	owner = bpf_map_lookup_elem(&owners, &object);
	if (!owner) {
		lost_add(map_full);
		return;
	}
	owner->holders++;
	if (!owner->task.pid && task_wanted(task)) {
		task_info_read(&owner->task, task);
		owner->fd = fd;
	}
}

#endif
