/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TARGET_BPF_H
#define __TARGET_BPF_H

#include "vmlinux.h"

/*
 * Programs whose section names no target, as SEC("uprobe.multi"), are attached to what
 * the user asks for. target_id() is the number of the target that the program was called
 * for. User space writes its body: a constant, or the kernel's cookie of the attachment.
 * The assembly keeps the compiler from knowing what this one returns.
 */
static __noinline __u64 target_id(void *ctx)
{
	__u64 id;

	asm volatile("%0 = 0" : "=r"(id) : "r"(ctx));
	return id;
}

#endif
