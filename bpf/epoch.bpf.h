/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __EPOCH_BPF_H
#define __EPOCH_BPF_H

#include "vmlinux.h"

/*
 * 0 or 1: what is counted is kept by epoch. User space flips it and waits for an RCU
 * grace period; from then on nobody writes to what the other epoch has, as a program
 * reads this once and is over by then. So an interval is cut exactly.
 */
__u32 count_epoch;

#endif
