/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TABLE_BPF_H
#define __TABLE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "epoch.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"

/*
 * A table that is counted: a struct table_value for each struct table_key. The tool
 * defines both before it includes this; the key is of a multiple of 4 bytes and without
 * holes. Members of the value that are __u64 are counters: user space adds them up over
 * the CPUs. Others say something of the key, and are the same whoever fills them in.
 */

#ifndef TABLE_MAX_ENTRIES
#define TABLE_MAX_ENTRIES (1 << 20)
#endif

struct table_entry {
	struct table_key key;
	__u32 epoch;
	__u32 cpu;
};

_Static_assert(sizeof(struct table_entry) == sizeof(struct table_key) + 8,
	       "struct table_key must be a multiple of 4 bytes");

/*
 * Entries are allocated as they come, as most of the room is never used; for kernels
 * where that is not safe user space changes it, as for hists (hist.bpf.h).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TABLE_MAX_ENTRIES);
	__type(key, struct table_entry);
	__type(value, struct table_value);
} table SEC(".maps") USER_SPACE;

/* What an entry begins as; on the stack there may be no room for it. */
const struct table_value table_empty = {};

/*
 * table_find returns what the key has on this CPU and in this interval, all zero when it
 * is new, or NULL when there is no room, which is counted. A program that comes between
 * may make the same entry: then the update fails and the look-up finds the other's.
 */
static __always_inline struct table_value *table_find(const struct table_key *key)
{
	struct table_entry entry = {
		.key = *key,
		.epoch = count_epoch,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct table_value *value = bpf_map_lookup_elem(&table, &entry);

	if (value)
		return value;
	bpf_map_update_elem(&table, &entry, &table_empty, BPF_NOEXIST);
	value = bpf_map_lookup_elem(&table, &entry);
	if (!value)
		lost_add(map_full);
	return value;
}

/*
 * table_add(value, member, n). The entry belongs to one CPU, but a program may be
 * interrupted by another that counts the same: atomic, it is exact.
 */
#define table_add(value, member, n) __sync_fetch_and_add(&(value)->member, (n))

#endif
