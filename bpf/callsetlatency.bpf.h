/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CALLSET_LATENCY_BPF_H
#define __CALLSET_LATENCY_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "callset.bpf.h"
#include "compat.bpf.h"

/*
 * The programs of hook call, at the entry and exit of the system calls of a tool. The tool defines
 * both functions.
 */

/* At the entry: stores what call_ended() needs. */
static __always_inline void call_begun(struct pt_regs *regs, const struct callset_call *call);

/* At the exit: reports the call, and returns 0. ret is its result. */
static __always_inline int call_ended(void *ctx, struct pt_regs *regs,
				      const struct callset_call *call, long ret);

static __always_inline int callset_enter(struct pt_regs *regs, __s32 nr, bool btf)
{
	struct callset_call call;

	if (callset_find(&call, regs, nr, btf))
		call_begun(regs, &call);
	return 0;
}

static __always_inline int callset_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	struct callset_call call;

	if (!callset_find(&call, regs, nr, btf))
		return 0;
	return NOT_PREEMPTED(call_ended(ctx, regs, &call, callset_ret(&call, ret)));
}

SEC("tp_btf/sys_enter")
int BPF_PROG(call__btf__enter, struct pt_regs *regs, long id)
{
	return NOT_PREEMPTED(callset_enter(regs, syscall_number(id), true));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call__btf__exit, struct pt_regs *regs, long ret)
{
	return callset_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_enter")
int BPF_PROG(call__raw__enter, struct pt_regs *regs, long id)
{
	return NOT_PREEMPTED(callset_enter(regs, syscall_number(id), false));
}

SEC("tp/raw_syscalls/sys_enter")
int call__tp__enter(struct trace_event_raw_sys_enter *ctx)
{
	return NOT_PREEMPTED(callset_enter(syscall_regs(), syscall_number(ctx->id), false));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(call__raw__exit, struct pt_regs *regs, long ret)
{
	return callset_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int call__tp__exit(struct trace_event_raw_sys_exit *ctx)
{
	return callset_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

#endif
