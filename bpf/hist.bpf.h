/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __HIST_BPF_H
#define __HIST_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "epoch.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"

/*
 * Histograms of durations, one for each struct hist_key. The tool defines that
 * struct, of a multiple of 4 bytes and without holes, before it includes this.
 */

#ifndef HIST_MAX_ENTRIES
#define HIST_MAX_ENTRIES (1 << 20)
#endif

/* Nanoseconds in the unit that is shown: 1, 1000 or 1000000. */
const volatile __u64 hist_unit_ns = 1000;

/* Set by user space when this run tells no keys apart. */
const volatile bool hist_plain = false;

struct hist_entry {
	struct hist_key key;
	__u16 slot;
	__u8 epoch;
	__u8 pad;
	__u32 cpu;
};

_Static_assert(sizeof(struct hist_entry) == sizeof(struct hist_key) + 8,
	       "struct hist_key must be a multiple of 4 bytes");

struct hist_slot {
	__u64 count;
	__u64 sum; /* nanoseconds, as are min and max */
	__u64 min;
	__u64 max;
};

/*
 * Most of the room is never used, so entries are allocated as they come. Before
 * 6.1 (fba1a1c6c912) that was kmalloc, unsafe under the locks that a tracing
 * program may find held, and loading warned (94dacdbd5d2d): there, and with
 * PREEMPT_RT, user space takes BPF_F_NO_PREALLOC away and asks for fewer entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HIST_MAX_ENTRIES);
	__type(key, struct hist_entry);
	__type(value, struct hist_slot);
} hists SEC(".maps") USER_SPACE;

#define HIST_SLOTS 976 /* hist_slot_of gives 975 at the most */

struct hist_slots {
	struct hist_slot slots[HIST_SLOTS];
};

_Static_assert(sizeof(struct hist_slots) <= 32768, "no per-CPU value may be larger");

/*
 * The one histogram of a run without keys, by epoch. Going to a slot by its number
 * costs some 10 ns where the hash takes 50.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct hist_slots);
} hists_plain SEC(".maps") USER_SPACE;

/*
 * x itself below 16, and from there on 16 slots for each power of two. That is
 * 16 * shift + (x >> shift), with the shift that leaves five bits of x: a search
 * in six steps, as BPF cannot count leading zeros. The last slot is 975.
 */
static __always_inline __u32 hist_slot_of(__u64 x)
{
	__u32 shift = 0;

	if (x >> 36) {
		shift += 32;
		x >>= 32;
	}
	if (x >> 20) {
		shift += 16;
		x >>= 16;
	}
	if (x >> 12) {
		shift += 8;
		x >>= 8;
	}
	if (x >> 8) {
		shift += 4;
		x >>= 4;
	}
	if (x >> 6) {
		shift += 2;
		x >>= 2;
	}
	if (x >> 5) {
		shift += 1;
		x >>= 1;
	}
	return shift * 16 + x;
}

/*
 * value / div * 2^shift, rounded down. From 2^50 on the shift would overflow; the
 * quotient alone then has more bits than a slot looks at, so it may come first.
 */
static __always_inline __u64 hist_scale(__u64 value, __u32 div, __u32 shift)
{
	if (!(value >> 50))
		return (value << shift) / div;
	if (value >> 63)
		value = ~0ULL >> 1;
	return value / div << shift;
}

/*
 * The value in 1/2^n of the unit, n being the least that makes this at most a
 * nanosecond: 1/1024 us, 1/2^20 ms. So slots nest exactly in the powers of two of
 * the unit, and a slot is never wider than a sixteenth of its values or 1 ns.
 */
static __always_inline __u64 hist_fixed_point(__u64 value_ns)
{
	if (hist_unit_ns == 1000)
		return hist_scale(value_ns, 125, 7);
	if (hist_unit_ns == 1000000)
		return hist_scale(value_ns, 15625, 14);
	return value_ns;
}

/*
 * Another program on this CPU may come between and make the same entry: then the
 * update fails and the look-up finds the other's.
 */
static __always_inline struct hist_slot *hist_insert(const struct hist_entry *entry)
{
	struct hist_slot empty = {};

	bpf_map_update_elem(&hists, entry, &empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&hists, entry);
}

static __always_inline struct hist_slot *hist_find(const struct hist_key *key, __u32 nr)
{
	struct hist_entry entry = {
		.key = *key,
		.slot = nr,
		.epoch = count_epoch,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct hist_slot *slot = bpf_map_lookup_elem(&hists, &entry);

	return slot ?: hist_insert(&entry);
}

static __always_inline struct hist_slot *hist_find_plain(__u32 nr)
{
	__u32 epoch = count_epoch;
	struct hist_slots *all = bpf_map_lookup_elem(&hists_plain, &epoch);

	if (!all || nr >= HIST_SLOTS)
		return NULL;
	/* Or clang adds to the pointer before it is tested, which the verifier refuses. */
	barrier_var(all);
	return &all->slots[nr];
}

/*
 * A slot belongs to one CPU, but a program may be interrupted by another that
 * writes the same one. The atomic additions keep count and sum exact and cost
 * nothing measurable on a line that the CPU owns. min and max may then keep the
 * second-best value, which lies in the same slot.
 */
static __always_inline void hist_add(struct hist_slot *slot, __u64 value_ns)
{
	if (!slot->count || value_ns < slot->min)
		slot->min = value_ns;
	if (value_ns > slot->max)
		slot->max = value_ns;
	__sync_fetch_and_add(&slot->count, 1);
	__sync_fetch_and_add(&slot->sum, value_ns);
}

/*
 * hist_record counts one duration under the key, which is not looked at in a plain
 * run. A clock that ran backwards makes a huge value_ns: the caller has looked for
 * that.
 */
static __always_inline void hist_record(const struct hist_key *key, __u64 value_ns)
{
	__u32 nr = hist_slot_of(hist_fixed_point(value_ns));
	struct hist_slot *slot = hist_plain ? hist_find_plain(nr) : hist_find(key, nr);

	if (slot)
		hist_add(slot, value_ns);
	else
		lost_add(map_full);
}

#endif
