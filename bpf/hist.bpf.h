/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __HIST_BPF_H
#define __HIST_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "epoch.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"

/*
 * Histograms of durations, one per struct hist_key. The tool defines that struct, without holes and
 * with a multiple of 4 bytes, before it includes this header.
 */

#ifndef HIST_MAX_ENTRIES
#define HIST_MAX_ENTRIES (1 << 20)
#endif

/* Instead of a unit: the slots are exponential, see hist_exponential_slot_of(). */
#define HIST_EXPONENTIAL (~0ULL)

/*
 * The displayed unit in nanoseconds: 1, 1000 or 1000000. Each program reads it once, so that it has
 * no additional instructions in runs without exponential slots.
 */
const volatile __u64 hist_unit_ns = 1000;

#define HIST_BOUNDS 8

/* The bounds of exponential slots in an octave, in ascending order, times a power of two that sets bit 63. */
const volatile __u64 hist_bounds[HIST_BOUNDS] = {};

/* Set by user space if this run has a single histogram. */
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
 * Entries are allocated on demand, because most of the capacity is never used. Before 6.1
 * (fba1a1c6c912) that is done with kmalloc, which is not safe under the locks that a traced
 * function can hold, and the kernel logs a warning (94dacdbd5d2d). In these kernels, and with
 * PREEMPT_RT, user space clears BPF_F_NO_PREALLOC and requests fewer entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, HIST_MAX_ENTRIES);
	__type(key, struct hist_entry);
	__type(value, struct hist_slot);
} hists SEC(".maps") USER_SPACE;

#define HIST_SLOTS 976 /* the largest slot is 975, see hist_slot_of() */

struct hist_slots {
	struct hist_slot slots[HIST_SLOTS];
};

_Static_assert(sizeof(struct hist_slots) <= 32768, "no per-CPU value may be larger");

/*
 * The histogram of a run without keys, per epoch. Indexing an array takes some 10 ns, a hash lookup
 * 50 ns.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct hist_slots);
} hists_plain SEC(".maps") USER_SPACE;

/*
 * hist_leading_zeros counts the zero bits above the highest one. It sets all bits below that and
 * counts the others, without branches: branches cost 20 ns if values differ, and the verifier follows
 * each of them separately. It is not __builtin_clzll, which clang 18 cannot compile for BPF; barrier_var
 * keeps clang from replacing the count by __builtin_popcountll, which it cannot compile either.
 */
static __always_inline __u32 hist_leading_zeros(__u64 x)
{
	x |= x >> 1;
	x |= x >> 2;
	x |= x >> 4;
	x |= x >> 8;
	x |= x >> 16;
	x |= x >> 32;
	x = ~x;
	x -= (x >> 1) & 0x5555555555555555;
	x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	barrier_var(x);
	return (x * 0x0101010101010101) >> 56;
}

/*
 * The slot is x below 16; from there on there are 16 slots per power of two: 16 * shift + (x >>
 * shift), with the shift that leaves five bits of x. The largest slot is 975.
 */
static __always_inline __u32 hist_slot_of(__u64 x)
{
	__u32 shift = 59 - hist_leading_zeros(x | 31);

	return shift * 16 + (x >> shift);
}

/*
 * Returns value / div * 2^shift, rounded down. From 2^50 on the shift could overflow, so the
 * division comes first: the quotient still has more bits than determine the slot. Values from 2^63
 * on become 2^63 - 1, without a branch, because the verifier follows what comes after it once more.
 */
static __always_inline __u64 hist_scale(__u64 value, __u32 div, __u32 shift)
{
	if (!(value >> 50))
		return (value << shift) / div;
	value = (value | (__s64)value >> 63) & ~0ULL >> 1;
	return value / div << shift;
}

/*
 * The value in units of 1/2^n of the displayed unit, with the smallest n for which that is at most
 * 1 ns: 1/1024 us, 1/2^20 ms. So slots nest exactly in the powers of two of the unit, and a slot is
 * never wider than a sixteenth of its values or 1 ns.
 */
static __always_inline __u64 hist_fixed_point(__u64 unit_ns, __u64 value_ns)
{
	if (unit_ns == 1000)
		return hist_scale(value_ns, 125, 7);
	if (unit_ns == 1000000)
		return hist_scale(value_ns, 15625, 14);
	return value_ns;
}

/*
 * The exponential slot: that of a bucket of Prometheus native histograms of schema 3, for runs whose
 * output is exported. 0 has slot 0. From 1 on there are 8 slots per power of two. Their bounds are
 * powers of 2^(1/8), of a second for durations: the lower bound is excluded, the upper one included.
 * They are the same in each octave of the value, except for a power of two. So the value is shifted
 * until bit 63 is set, and bounds below it are counted, without branches: the difference is negative if
 * the bound is less. All but one bound are irrational and rounded down, which makes no difference for
 * an integer. The largest slot is 513.
 */
static __always_inline __u32 hist_exponential_slot_of(__u64 x)
{
	__u32 zeros, below = 0;

	if (!x)
		return 0;
	zeros = hist_leading_zeros(x);
	x <<= zeros;
	for (int i = 0; i < HIST_BOUNDS; i++)
		below += (hist_bounds[i] - x) >> 63;
	return 1 + (63 - zeros) * HIST_BOUNDS + below;
}

/* Zero initializer, in .rodata because of the 512-byte stack limit. */
static const struct hist_slot hist_empty = {};

/* The number of entries that were added to hists so far. User space empties the map before it is full. */
__u64 hists_added;

/*
 * Another program can interrupt this one and add the same entry: then the update fails, and the
 * lookup finds that entry.
 */
static __always_inline struct hist_slot *hist_insert(const struct hist_entry *entry)
{
	if (!bpf_map_update_elem(&hists, entry, &hist_empty, BPF_NOEXIST))
		__sync_fetch_and_add(&hists_added, 1);
	return bpf_map_lookup_elem(&hists, entry);
}

static __always_inline struct hist_slot *hist_find(const struct hist_key *key, __u32 nr, __u32 epoch)
{
	struct hist_entry entry = {
		.key = *key,
		.slot = nr,
		.epoch = epoch,
		.cpu = bpf_get_smp_processor_id(),
	};
	struct hist_slot *slot = bpf_map_lookup_elem(&hists, &entry);

	return slot ?: hist_insert(&entry);
}

static __always_inline struct hist_slot *hist_find_plain(__u32 nr, __u32 epoch)
{
	struct hist_slots *all = bpf_map_lookup_elem(&hists_plain, &epoch);
	__u64 index = nr;

	barrier_var(index); /* the verifier needs the register that was compared, not the sum again */
	if (!all || index >= HIST_SLOTS)
		return NULL;
	/* Otherwise clang adds to the pointer before the NULL check, which the verifier rejects. */
	barrier_var(all);
	return &all->slots[index];
}

/*
 * A slot belongs to one CPU, but a program can be interrupted by another one that writes to it. The
 * atomic additions keep count and sum exact, at no measurable cost in a cache line of the same CPU.
 * min and max can then be those of another value in the same slot.
 */
static __always_inline void hist_add(struct hist_slot *slot, __u64 value_ns, __u64 n)
{
	if (!slot->count || value_ns < slot->min)
		slot->min = value_ns;
	if (value_ns > slot->max)
		slot->max = value_ns;
	__sync_fetch_and_add(&slot->count, n);
	__sync_fetch_and_add(&slot->sum, value_ns * n);
}

/* Counts the duration in this slot n times. */
static __always_inline void hist_count(const struct hist_key *key, __u32 nr, __u64 value_ns, __u64 n)
{
	struct hist_slot *slot = hist_plain ? hist_find_plain(nr, count_epoch) : hist_find(key, nr, count_epoch);

	if (slot)
		hist_add(slot, value_ns, n);
	else
		lost_add_n(map_full, n);
}

/* A function of its own, because user space removes it from runs without exponential slots (probe.Cut). */
static __noinline int hist_count_exponential(const struct hist_key *key, __u64 value_ns, __u64 n)
{
	hist_count(key, hist_exponential_slot_of(value_ns), value_ns, n);
	return 0;
}

/*
 * hist_record_n counts a duration n times. The key is ignored in a run with a single histogram. The
 * caller has excluded negative durations, which are huge as value_ns.
 */
static __always_inline void hist_record_n(const struct hist_key *key, __u64 value_ns, __u64 n)
{
	__u64 unit_ns = hist_unit_ns;

	if (unit_ns == HIST_EXPONENTIAL) {
		/* The key itself need not be in memory then. */
		struct hist_key copy = *key;

		hist_count_exponential(&copy, value_ns, n);
		return;
	}
	hist_count(key, hist_slot_of(hist_fixed_point(unit_ns, value_ns)), value_ns, n);
}

static __always_inline void hist_record(const struct hist_key *key, __u64 value_ns)
{
	hist_record_n(key, value_ns, 1);
}

#endif
