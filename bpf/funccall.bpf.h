/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FUNCCALL_BPF_H
#define __FUNCCALL_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "counters.bpf.h"
#include "frame.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"
#include "return.bpf.h"

/*
 * Calls of functions that the user selects, kernel and user functions, from entry to return. The tool
 * defines, before it includes this header,
 *
 *	struct counters, with the members no_begin and no_return
 *	struct call, the data of a call, with the members ns and caller
 */

/* A call that has not returned. */
struct call_key {
	__u64 frame; /* position on the stack, which distinguishes nested calls */
	__u32 tid;
	__u32 target;
};

/*
 * Entries of calls that never return, because the task was killed or left them by longjmp or an
 * exception, remain until the map is full: then the oldest are evicted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct call_key);
	__type(value, struct call);
} calls SEC(".maps");

/* func_call_begin adds a call, whose time is set here. */
static __always_inline void func_call_begin(__u32 target, __u64 frame, struct call *call, bool user)
{
	struct call_key key = { .frame = frame, .target = target };

	key.tid = bpf_get_current_pid_tgid();
	call->ns = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&calls, &key, call, BPF_NOEXIST)) {
		counter_add(no_return);
		return;
	}
	/*
	 * An entry with the same frame is a call that has ended, but was not observed to return: an exception
	 * or longjmp() has left it, which does not happen in the kernel.
	 */
	if (bpf_map_update_elem(&calls, &key, call, BPF_EXIST))
		lost_add(map_full);
	else if (user)
		counter_add(no_return);
	else
		lost_add(unobserved);
}

/* func_call_end copies the data of the call that returns, and removes it. It returns false if there is none. */
static __always_inline bool func_call_end(void *ctx, __u32 target, __u64 frame, __u64 form, struct call *call)
{
	struct call_key key = { .frame = frame, .target = target };
	struct call *begun;

	/* Calls are only noted from then on, and no results are wanted while the programs are being detached. */
	if (!observing)
		return false;
	key.tid = bpf_get_current_pid_tgid();
	begun = bpf_map_lookup_elem(&calls, &key);
	if (!begun) {
		if (form != RETURN_AT_SHARED)
			counter_add(no_begin);
		return false;
	}
	if (!return_matches(ctx, form, begun->caller))
		return false;
	*call = *begun;
	bpf_map_delete_elem(&calls, &key);
	counter_add_n(no_return, -1);
	return true;
}

struct fprobe_hlist___new {
	int dummy;
};

/* Exists in no kernel: a program that reads it does not load. */
struct pt_regs___none {
	long none;
} __attribute__((preserve_access_index));

/*
 * Returns of fprobe are based on fgraph from 6.14 on (4346ba160409), whose trampoline does not
 * preserve the caller's stack pointer. The program then does not load, and kprobes are used.
 */
static __always_inline __u64 frame_at_multi_end(struct pt_regs *regs)
{
	if (bpf_core_type_exists(struct fprobe_hlist___new))
		return BPF_CORE_READ((struct pt_regs___none *)regs, none);
	return PT_REGS_SP(regs);
}

#endif
