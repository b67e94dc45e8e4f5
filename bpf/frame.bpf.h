/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FRAME_BPF_H
#define __FRAME_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_tracing.h>

/*
 * A call is identified by its frame, which distinguishes nested calls. For kprobes and uprobes the
 * frame is the stack pointer after the return. At the entry of a function, and at its return
 * instruction, that is the address above the return address on x86, and the stack pointer on arm64.
 * For fentry and fexit the frame is their context, which contains the arguments of the call until
 * its fexit has run.
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
