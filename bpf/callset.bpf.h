/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CALLSET_BPF_H
#define __CALLSET_BPF_H

#include "syscall.bpf.h"

/*
 * System calls that a tool selects by name. User space sets their kinds by number
 * (value.Syscalls.Kinds in Go): the tool defines the meaning of a kind, and 0 is any other call.
 */

#define CALLSET_MAX 1024

/* One byte per enum syscall_abi, starting with the lowest. */
const volatile __u32 targ_calls[CALLSET_MAX] = {};

/* A system call that the tool selects. */
struct callset_call {
	__u32 kind;
	__u32 nr; /* without the x32 bit */
	__u32 abi; /* enum syscall_abi */
	bool compat;
};

/* Returns false for other calls. nr is with the x32 bit. */
static __always_inline bool callset_find(struct callset_call *call, struct pt_regs *regs, __s32 nr,
					 bool btf)
{
	__u32 kinds, index = nr & ~__X32_SYSCALL_BIT;

	if (nr < 0 || index >= CALLSET_MAX)
		return false;
	call->nr = index;
	barrier_var(index); /* the verifier needs the mask, which the comparison makes redundant */
	kinds = targ_calls[index & (CALLSET_MAX - 1)];
	if (!kinds)
		return false;
	call->compat = syscall_is_compat_for(regs, btf);
	call->abi = syscall_abi(nr, call->compat);
	call->kind = kinds >> (8 * (call->abi & 3)) & 0xff;
	return call->kind;
}

/* The result of a 32-bit task's call has 32 bits. */
static __always_inline long callset_ret(const struct callset_call *call, long ret)
{
	return call->compat ? (__s32)ret : ret;
}

#endif
