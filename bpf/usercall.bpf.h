/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __USERCALL_BPF_H
#define __USERCALL_BPF_H

/* The struct counters of tools that include this header. */
struct counters {
	__u64 no_return; /* calls left by an exception or longjmp, whose thread ended, or still running at the end */
	__u64 unseen_calls; /* returns of calls whose entry was not observed, such as calls in progress at the start */
};

#include "call.bpf.h"
#include "counters.bpf.h"
#include "return.bpf.h"
#include "task.bpf.h"

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

/*
 * is_unseen_call reports whether the return of a call without an entry in calls is that of a call
 * whose entry was not observed. Such a call began before all calls of its thread that are stored, so
 * its frame is above theirs. A call that is nested too deeply to be stored is already counted as
 * lost. A shared return instruction also ends calls of functions that are not traced. A uretprobe
 * does not run for calls that are in progress when it is attached, and it runs twice with the same
 * frame if one traced function jumps to another.
 */
static __always_inline bool is_unseen_call(struct calls *all, __u64 frame, __u64 form)
{
	if (form != RETURN_AT || !task_current_wanted())
		return false;
	if (!all)
		return true;
	for (int i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i] > frame)
			return false;
	return call_slot(all, 0) >= 0;
}

/*
 * user_call_end is call_end() for a program at the return of a user function. It counts calls whose
 * entry was not observed.
 */
static __always_inline bool user_call_end(struct pt_regs *ctx, struct call *call, bool *nested)
{
	struct calls *all = calls_find(bpf_get_current_pid_tgid());
	__u64 form = return_form(), frame = frame_at_return(ctx, form);
	int i = all ? call_slot(all, frame) : -1;

	if (!all || i < 0 || i >= CALL_DEPTH_MAX) {
		if (is_unseen_call(all, frame, form))
			counter_add(unseen_calls);
		return false;
	}
	if (!return_matches(ctx, form, all->caller[i]))
		return false;
	*call = all->call[i];
	call_remove(all, i, nested);
	counter_add_n(no_return, -1);
	return true;
}

#endif
