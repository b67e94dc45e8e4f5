/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TARGET_BPF_H
#define __TARGET_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

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

#define TARGET_PROGRAM(name, section, at_first, call)  \
	SEC(section)                                   \
	int name(void *ctx)                            \
	{                                              \
		const bool user_entry = at_first;      \
                                                       \
		(void)user_entry;                      \
		return call;                           \
	}

/*
 * Programs for all that a user can ask for. The call has ctx, and user_entry where that is
 * in a function of user space that is called.
 */
#define TARGET_PROGRAMS(call)                                                 \
	TARGET_PROGRAM(kernel__multi, "kprobe.multi", false, call)            \
	TARGET_PROGRAM(kernel__kprobe, "kprobe", false, call)                 \
	TARGET_PROGRAM(kernel_return__multi, "kretprobe.multi", false, call)  \
	TARGET_PROGRAM(kernel_return__kprobe, "kretprobe", false, call)       \
	TARGET_PROGRAM(user__multi, "uprobe.multi", true, call)               \
	TARGET_PROGRAM(user__uprobe, "uprobe", true, call)                    \
	TARGET_PROGRAM(user_return__multi, "uretprobe.multi", false, call)    \
	TARGET_PROGRAM(user_return__uprobe, "uretprobe", false, call)         \
	TARGET_PROGRAM(tracepoint__tp, "tracepoint", false, call)

/* For programs that do not look at the tracepoint's arguments. */
#define TARGET_PROGRAM_RAW(call) TARGET_PROGRAM(tracepoint__raw, "raw_tp", false, call)

#endif
