/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FRAME_BPF_H
#define __FRAME_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_tracing.h>

/*
 * A call is identified by its frame, which distinguishes nested calls. For kprobes and uprobes that is
 * the stack pointer in the caller: the stack pointer after the return, and at the entry (and at the
 * return instruction) on x86 the address above the return address. For fentry and fexit it is their
 * context, which holds the arguments of a call until its fexit has run.
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
