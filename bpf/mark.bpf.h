/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __MARK_BPF_H
#define __MARK_BPF_H

#include "return.bpf.h"
#include "task.bpf.h"

/*
 * Marks are the calls of functions with shared return instructions, for programs that only observe
 * returns. User space attaches the programs that make marks to the entries of these functions alone.
 */
struct mark {
	__u64 frame;
	__u64 target;
	__u32 tid;
	__u32 pad;
};

/* A call that an exception leaves keeps its mark, until a call with the same frame replaces it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct mark);
	__type(value, __u64); /* return address */
} marks SEC(".maps");

static __noinline __attribute__((unused)) int mark_call(struct pt_regs *ctx, __u64 target)
{
	struct mark mark = { .frame = frame_at_begin(ctx), .target = target };
	__u64 caller = caller_address(ctx);

	mark.tid = bpf_get_current_pid_tgid();
	if (task_current_wanted() && bpf_map_update_elem(&marks, &mark, &caller, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/* is_return() reports whether the program runs for the return of a call of the target. */
static __noinline __attribute__((unused)) int is_return(struct pt_regs *ctx, __u64 target)
{
	struct mark mark = { .target = target };
	__u64 form = return_form(), *caller;
	bool matches;

	if (form != RETURN_AT_SHARED)
		return true;
	mark.frame = frame_at_return(ctx, form);
	mark.tid = bpf_get_current_pid_tgid();
	caller = bpf_map_lookup_elem(&marks, &mark);
	if (!caller)
		return false;
	matches = return_matches(ctx, form, *caller);
	bpf_map_delete_elem(&marks, &mark);
	return matches;
}

#endif
