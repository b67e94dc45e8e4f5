/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACKID_BPF_H
#define __STACKID_BPF_H

#include "vmlinux.h"

/*
 * The ID of a stack (stacks.bpf.h), 0 for none. User space finds members of this type in the values
 * of maps, and keeps the stacks with these IDs. A map whose values contain IDs needs USER_SPACE.
 */
typedef __u64 stack_id_t;

#endif
