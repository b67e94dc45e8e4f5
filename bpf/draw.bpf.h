/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __DRAW_BPF_H
#define __DRAW_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * Counts of 1 of N events, each with the weight N, so that all counts and sums have the right
 * expectation. One draw decides about an event, and whatever is kept of it until it ends has the
 * exponent of N at the time of the draw: user space changes it while events are under way.
 */

/* Set in runs whose counts may be estimates (Plan.Draws). The code is removed from others. */
const volatile bool want_draw = false;

/* N is 2^draw_shift. User space sets it at any time, to at most DRAW_MAX_SHIFT. */
__u32 draw_shift;

#define DRAW_MAX_SHIFT 7 /* 3 bits, see sched.bpf.h */

/* Returns whether the event is counted, and sets the exponent of its weight. */
static __always_inline bool draw_event(__u32 *shift)
{
	*shift = 0;
	if (!want_draw)
		return true;
	*shift = *(volatile __u32 *)&draw_shift & DRAW_MAX_SHIFT;
	return !*shift || !(bpf_get_prandom_u32() >> (32 - *shift));
}

/*
 * The number of events that an event with this exponent stands for. The barrier is for runs without
 * draws: the verifier removes a branch, but not instructions that clang executes in any case.
 */
static __always_inline __u64 draw_weight(__u32 shift)
{
	__u64 n = 1;

	if (want_draw) {
		barrier();
		n <<= shift;
	}
	return n;
}

#endif
