/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __DIRTIER_BPF_H
#define __DIRTIER_BPF_H

#include "compat.bpf.h"
#include "inode.bpf.h"
#include "map.bpf.h"
#include "task.bpf.h"

/*
 * The tasks that data of files in the page cache is from: those that made it dirty most recently.
 */

/* A task that the data is from. */
struct dirtier {
	__u64 cgroup_id;
	__u32 pid;
	__u32 tid;
	char comm[TASK_COMM_LEN];
};

/* The identity of a file. A subvolume of btrfs is a device of its own. */
struct dirtier_key {
	__u64 ino;
	__u64 instance; /* inode_instance() */
	__u32 dev;
	__u32 pad;
};

/*
 * The task that made data of a file dirty most recently. User space sets the size if a column needs
 * the map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct dirtier_key);
	__type(value, struct dirtier);
} dirtiers SEC(".maps") USER_SPACE;

__u64 dirtiers_added; /* keys */
__u64 dirtiers_kept; /* keys at the end */

static __always_inline void dirtier_key_read(struct dirtier_key *key, const struct inode *inode)
{
	key->ino = BPF_CORE_READ(inode, i_ino);
	key->instance = inode_instance(inode);
	key->dev = inode_dev(inode);
}

/* Until 6.18 a number, in 6.18 an enum, later a structure. */
struct inode___number {
	unsigned int i_state;
} __attribute__((preserve_access_index));

enum inode_state_flags_t {
	INODE_STATE_ANY,
};

struct inode___enum {
	enum inode_state_flags_t i_state;
} __attribute__((preserve_access_index));

struct inode___struct {
	struct {
		__u32 __state;
	} i_state;
} __attribute__((preserve_access_index));

static __always_inline __u32 inode_state_offset(void)
{
	if (bpf_core_field_exists(struct inode___number, i_state))
		return bpf_core_field_offset(struct inode___number, i_state);
	if (bpf_core_field_exists(struct inode___enum, i_state))
		return bpf_core_field_offset(struct inode___enum, i_state);
	return bpf_core_field_offset(struct inode___struct, i_state);
}

/* The flag I_SYNC of an inode that is being written back. Its number changed in 6.12. */
static __always_inline bool inode_is_synced(const struct inode *inode)
{
	__u32 bit = 7, state = 0;

	if (bpf_core_enum_value_exists(enum inode_state_bits, __I_SYNC))
		bit = bpf_core_enum_value(enum inode_state_bits, __I_SYNC);
	bpf_probe_read_kernel(&state, sizeof(state), (void *)inode + inode_state_offset());
	return state >> bit & 1;
}

/*
 * A page or folio of a file became dirty. A thread that writes back the file and cannot write a page
 * makes it dirty again: it is not the one that changed the data.
 */
static __always_inline int handle_dirty(struct address_space *mapping)
{
	struct task_struct *task = task_current();
	struct dirtier_key key = {};
	struct dirtier now = {}, *known;
	struct inode *inode;

	if (!mapping)
		return 0;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode || inode_type(inode) != S_IFREG)
		return 0;
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD && inode_is_synced(inode))
		return 0;
	dirtier_key_read(&key, inode);
	now.pid = BPF_CORE_READ(task, tgid);
	now.tid = BPF_CORE_READ(task, pid);
	now.cgroup_id = task_cgroup_id(task);
	known = bpf_map_lookup_elem(&dirtiers, &key);
	if (known && known->tid == now.tid && known->cgroup_id == now.cgroup_id)
		return 0;
	BPF_CORE_READ_STR_INTO(&now.comm, task, comm);
	if (!bpf_map_update_elem(&dirtiers, &key, &now, BPF_NOEXIST))
		__sync_fetch_and_add(&dirtiers_added, 1);
	else
		bpf_map_update_elem(&dirtiers, &key, &now, BPF_ANY);
	return 0;
}

/* Folios from 5.18 on (203a31516616), pages before. */
SEC("tp_btf/writeback_dirty_folio")
int dirty__btf(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

SEC("raw_tp/writeback_dirty_folio")
int dirty__raw(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

SEC("tp_btf/writeback_dirty_page")
int dirty__oldbtf(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

SEC("raw_tp/writeback_dirty_page")
int dirty__oldraw(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

static __always_inline struct dirtier *dirtier_of(__u64 inode)
{
	struct dirtier_key key = {};

	dirtier_key_read(&key, (void *)inode);
	return bpf_map_lookup_elem(&dirtiers, &key);
}

/* Whether a task is the last one that made data of the file dirty. Global, as bio_read(). */
__noinline int dirtier_is(__u64 inode, __u32 pid, __u32 tid, __u64 cgroup_id)
{
	struct dirtier *dirtier = dirtier_of(inode);

	return dirtier && dirtier->pid == pid && dirtier->tid == tid &&
	       dirtier->cgroup_id == cgroup_id;
}

/* The program that counts the keys that the map has lost, at the end. It follows rq.bpf.h. */
#define SETTLE_DIRTIERS                                                                  \
	SEC("iter/bpf_map_elem")                                                         \
	int settle_dirtiers(struct bpf_iter__bpf_map_elem *ctx)                          \
	{                                                                                \
		if (ctx->key)                                                            \
			__sync_fetch_and_add(&dirtiers_kept, 1);                         \
		else if (dirtiers_added > dirtiers_kept)                                 \
			counter_add_n(dirtiers_evicted, dirtiers_added - dirtiers_kept); \
		return 0;                                                                \
	}

#endif
