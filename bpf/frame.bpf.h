/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FRAME_BPF_H
#define __FRAME_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_tracing.h>

/*
 * A call is known by its place on the stack, so that calls within calls are not mixed up.
 * For kprobes and uprobes that is the stack pointer in the caller. At a return it is that
 * again; at the beginning x86 has the return address below it. For fentry and fexit it is
 * their context: there the arguments of a call are kept until its fexit has run.
 */
static __always_inline __u64 frame_at_begin(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return PT_REGS_SP(regs) + sizeof(long);
#else
	return PT_REGS_SP(regs);
#endif
}

static __always_inline __u64 frame_at_end(struct pt_regs *regs)
{
	return PT_REGS_SP(regs);
}

#endif
