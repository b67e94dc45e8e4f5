/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TARGET_BPF_H
#define __TARGET_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "observing.bpf.h"

/*
 * Programs whose section names no target, such as SEC("uprobe.multi"), are attached to the targets
 * that the user requests. target_id() returns the number of the target that the program runs for.
 * User space generates its body: a constant, or the attach cookie. The assembly hides the result
 * from the compiler.
 */
static __noinline __u64 target_id(void *ctx)
{
	__u64 id;

	asm volatile("%0 = 0" : "=r"(id) : "r"(ctx));
	return id;
}

/*
 * The programs do nothing until they are attached to all targets, which takes seconds if there are
 * thousands, nor while they are being detached from them.
 */
#define TARGET_PROGRAM(name, section, at_first, call)  \
	SEC(section)                                   \
	int name(void *ctx)                            \
	{                                              \
		const bool user_entry = at_first;      \
		const bool kernel = !user_entry;       \
                                                       \
		(void)kernel;                          \
		return observing ? call : 0;           \
	}

/* A tool with programs for returns of user functions includes mark.bpf.h. */
#define TARGET_RETURN(name, section, call)                                 \
	SEC(section)                                                       \
	int name(void *ctx)                                                \
	{                                                                  \
		const bool user_entry = return_form() != RETURN_AFTER;     \
		const bool kernel = false;                                 \
                                                                           \
		(void)user_entry;                                          \
		(void)kernel;                                              \
		if (!is_return(ctx, target_id(ctx)))                       \
			return 0;                                          \
		return observing ? call : 0;                               \
	}

#define TARGET_MARK(name, section)                       \
	SEC(section)                                     \
	int name(void *ctx)                              \
	{                                                \
		return mark_call(ctx, target_id(ctx));   \
	}

/*
 * Programs for all kinds of targets. The call can use ctx, and user_entry: whether the program is
 * at an instruction of a user function where there is no frame, at its entry or return, and kernel:
 * whether it runs in the kernel, where it can interrupt a program of a user function (scratch.bpf.h).
 */
#define TARGET_PROGRAMS(call)                                                 \
	TARGET_PROGRAM(kernel__multi, "kprobe.multi", false, call)            \
	TARGET_PROGRAM(kernel__kprobe, "kprobe", false, call)                 \
	TARGET_PROGRAM(kernel_return__multi, "kretprobe.multi", false, call)  \
	TARGET_PROGRAM(kernel_return__kprobe, "kretprobe", false, call)       \
	TARGET_PROGRAM(user__multi, "uprobe.multi", true, call)               \
	TARGET_PROGRAM(user__uprobe, "uprobe", true, call)                    \
	TARGET_RETURN(user_return__multi, "uretprobe.multi", call)            \
	TARGET_MARK(user_return__multi__mark, "uprobe.multi")                 \
	TARGET_RETURN(user_return__uprobe, "uretprobe", call)                 \
	TARGET_MARK(user_return__uprobe__mark, "uprobe")                      \
	TARGET_PROGRAM(tracepoint__tp, "tracepoint", false, call)

/* For programs that do not read the arguments of tracepoints. */
#define TARGET_PROGRAM_RAW(call) TARGET_PROGRAM(tracepoint__raw, "raw_tp", false, call)

#endif
