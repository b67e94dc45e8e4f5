/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __EPOCH_BPF_H
#define __EPOCH_BPF_H

#include "vmlinux.h"

/*
 * 0 or 1. Counts are kept per epoch. User space switches the epoch and waits for an RCU grace
 * period: then no program writes to the counts of the old epoch, because a program reads this
 * variable once and has ended by then. So every value is counted in exactly one interval.
 */
__u32 count_epoch;

#ifdef INTERVAL_END
/*
 * For tools that count time: the end of the last interval (CLOCK_MONOTONIC), with its epoch in the
 * lowest bit. User space sets it before that time and waits, so that every program that runs after
 * it knows it. Time before it belongs to that epoch, time after it to the other one.
 */
__u64 interval_end_ns = 1;
#endif

#endif
