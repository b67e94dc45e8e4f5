/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __RETURN_BPF_H
#define __RETURN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "frame.bpf.h"
#include "lost.bpf.h"

/*
 * Programs for the return of user functions are uprobes at return instructions, if these can be
 * determined. A uretprobe replaces the return address on the stack, so an exception that leaves the
 * function aborts the traced program; it is used only for functions that no exception can leave.
 */
enum return_form {
	RETURN_AFTER, /* uretprobe: the program runs after the return */
	RETURN_AT, /* at a return instruction that only calls of the function end with */
	RETURN_AT_SHARED, /* at a return instruction of another function, which the function jumps to (tail call) */
};

/* Keeps the type in the BTF of the object, for comparison with the Go constants. */
const enum return_form *return_form_type __attribute__((unused));

/*
 * return_form() returns the form of the program. User space generates its body. The assembly hides
 * the result from the compiler.
 */
static __noinline __attribute__((unused)) __u64 return_form(void)
{
	__u64 form;

	asm volatile("%0 = 0" : "=r"(form));
	return form;
}

/* frame_at_return() returns what frame_at_begin() returned at the entry of the call. */
static __always_inline __u64 frame_at_return(struct pt_regs *regs, __u64 form)
{
	return form == RETURN_AFTER ? frame_at_end(regs) : frame_at_begin(regs);
}

/*
 * caller_address() returns the return address, at the first instruction of a function or at its
 * return instruction.
 */
static __always_inline __u64 caller_address(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	__u64 caller = 0;

	bpf_probe_read_user(&caller, sizeof(caller), (void *)PT_REGS_SP(regs));
	return caller;
#else
	return ((struct user_pt_regs *)regs)->regs[30];
#endif
}

/*
 * A shared return instruction also ends calls of other functions. Such a call can have the same
 * frame as an earlier call of this function that was left by an exception, but it has another
 * return address.
 */
static __always_inline bool return_matches(struct pt_regs *regs, __u64 form, __u64 caller)
{
	return form != RETURN_AT_SHARED || caller_address(regs) == caller;
}

#endif
