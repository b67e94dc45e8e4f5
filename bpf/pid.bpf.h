/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PID_BPF_H
#define __PID_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/* From an ID in any PID namespace to its tasks. */

#define PID_FS_MAGIC 0x50494446
/* Levels of the tree of IDs, which have at most 22 bits. */
#define PID_TREE_LEVELS 4
#define PID_TREE_SLOTS 64

static __always_inline struct pid_namespace *pid_current_ns(void)
{
	struct pid *pid = BPF_CORE_READ(task_current(), thread_pid);
	struct upid *innermost = pid_upid(pid, BPF_CORE_READ(pid, level));

	return BPF_CORE_READ(innermost, ns);
}

/* Walks the tree (XArray) in which the namespace has its IDs. Returns NULL for an unused ID. */
static __noinline struct pid *pid_find(struct pid_namespace *ns, __u32 id)
{
	struct xa_node *node;
	void *entry;
	__u8 shift;

	if (!bpf_core_field_exists(ns->idr))
		return NULL;
	entry = BPF_CORE_READ(ns, idr.idr_rt.xa_head);
	for (int i = 0; i < PID_TREE_LEVELS; i++) {
		if (((__u64)entry & 3) != 2) /* not a node */
			break;
		node = entry - 2;
		shift = BPF_CORE_READ(node, shift);
		if (!i && id >> (shift & 31) >= PID_TREE_SLOTS)
			return NULL;
		if (bpf_probe_read_kernel(&entry, sizeof(entry),
					  (void *)node + bpf_core_field_offset(struct xa_node, slots) +
						  sizeof(entry) * (id >> (shift & 31) & (PID_TREE_SLOTS - 1))))
			return NULL;
	}
	return (__u64)entry & 3 ? NULL : entry;
}

static __always_inline struct hlist_node *pid_first(struct pid *pid, enum pid_type type)
{
	struct hlist_node *first = NULL;

	bpf_probe_read_kernel(&first, sizeof(first),
			      (void *)pid + bpf_core_field_offset(struct pid, tasks) +
				      type * sizeof(struct hlist_head));
	return first;
}

/* The task of an entry of the list that pid_first() begins. */
static __always_inline struct task_struct *pid_task(struct hlist_node *node, enum pid_type type)
{
	return (void *)node - bpf_core_field_offset(struct task_struct, pid_links) -
	       type * sizeof(struct hlist_node);
}

/* Returns NULL if it is not the file of a pidfd. */
static __always_inline struct pid *pid_of_file(struct file *file)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
	struct inode *inode = BPF_CORE_READ(dentry, d_inode);
	const char want[8] = "[pidfd]";
	char name[8] = {};

	if (BPF_CORE_READ(inode, i_sb, s_magic) == PID_FS_MAGIC) /* 6.9 (cb12fd8e0dab) */
		return BPF_CORE_READ(inode, i_private);
	bpf_probe_read_kernel_str(&name, sizeof(name), BPF_CORE_READ(dentry, d_name.name));
	for (int i = 0; i < sizeof(name); i++)
		if (name[i] != want[i])
			return NULL;
	return BPF_CORE_READ(file, private_data);
}

#endif
