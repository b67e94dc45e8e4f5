/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __USERCALL_BPF_H
#define __USERCALL_BPF_H

/* A counter of calls that have not returned, in the struct counters of tools that include this header. */
struct counters {
	__u64 no_return; /* calls left by an exception or longjmp, whose thread ended, or still running at the end */
};

#include "call.bpf.h"
#include "counters.bpf.h"
#include "return.bpf.h"

/*
 * user_call_begin returns the data of a new call of a user function, at its entry. It returns NULL
 * if the call is lost, or is part of a call with the same frame that has jumped to this function
 * (tail call).
 */
static __always_inline struct call *user_call_begin(struct pt_regs *ctx)
{
	__u64 frame = frame_at_begin(ctx), caller = caller_address(ctx);
	struct calls *all = calls_get();
	int i = all ? call_slot(all, frame) : -1;
	struct call *call;

	if (all && i >= 0 && i < CALL_DEPTH_MAX && all->caller[i] == caller && all->entry[i] != PT_REGS_IP(ctx))
		return NULL;
	call = call_put(all, i, frame);
	if (!call)
		return NULL;
	i = call_slot(all, frame);
	if (i < 0 || i >= CALL_DEPTH_MAX)
		return NULL;
	all->caller[i] = caller;
	all->entry[i] = PT_REGS_IP(ctx);
	counter_add(no_return);
	return call;
}

/* user_call_end is call_end() for a program at the return of a user function. */
static __always_inline bool user_call_end(struct pt_regs *ctx, struct call *call, bool *nested)
{
	struct calls *all = calls_find(bpf_get_current_pid_tgid());
	__u64 form = return_form();
	int i;

	if (!all)
		return false;
	i = call_slot(all, frame_at_return(ctx, form));
	if (i < 0 || i >= CALL_DEPTH_MAX || !return_matches(ctx, form, all->caller[i]))
		return false;
	*call = all->call[i];
	call_remove(all, i, nested);
	counter_add_n(no_return, -1);
	return true;
}

#endif
