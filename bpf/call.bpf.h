/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CALL_BPF_H
#define __CALL_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "frame.bpf.h"
#include "lost.bpf.h"

/*
 * The calls that a thread is in: from where a function is entered to where it returns. The
 * tool defines struct call, what it keeps of a call, before it includes this, and is given
 * it back by call_end().
 *
 * Calls may be within calls. The one that returns is known by its frame (frame.bpf.h), so one
 * that is left by longjmp() or an exception disturbs no other. It takes up its place until
 * the thread ends.
 */
#define CALL_DEPTH_MAX 4

struct calls {
	__u64 frame[CALL_DEPTH_MAX]; /* 0 for a free place */
	struct call call[CALL_DEPTH_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, struct calls);
} calls SEC(".maps");

/* What a thread's first call is put in with. */
static const struct calls calls_none = {};

static __always_inline int call_place(struct calls *all, __u64 frame)
{
	for (int i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i] == frame)
			return i;
	return -1;
}

static __always_inline struct calls *calls_of(__u32 tid)
{
	return bpf_map_lookup_elem(&calls, &tid);
}

/* call_begin returns where to keep what is known of a call, or NULL: then it is lost. */
static __always_inline struct call *call_begin(__u64 frame)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct calls *all = calls_of(tid);
	int i;

	if (!all) {
		bpf_map_update_elem(&calls, &tid, &calls_none, BPF_NOEXIST);
		all = calls_of(tid);
	}
	if (!all)
		goto lost;
	i = call_place(all, frame);
	if (i < 0)
		i = call_place(all, 0);
	if (i < 0 || i >= CALL_DEPTH_MAX)
		goto lost;
	all->frame[i] = frame;
	return &all->call[i];
lost:
	lost_add(map_full);
	return NULL;
}

/*
 * call_end gives back what is known of the call that returns, and forgets it; false for a
 * call that was not seen to begin. nested tells that it was within another one.
 */
static __always_inline bool call_end(__u64 frame, struct call *call, bool *nested)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct calls *all = calls_of(tid);
	int i;

	if (!all)
		return false;
	i = call_place(all, frame);
	if (i < 0 || i >= CALL_DEPTH_MAX)
		return false;
	*call = all->call[i];
	all->frame[i] = 0;
	*nested = false;
	for (i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i])
			*nested = true;
	if (!*nested)
		bpf_map_delete_elem(&calls, &tid);
	return true;
}

static __always_inline int calls_forget(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (calls_of(tid))
		bpf_map_delete_elem(&calls, &tid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended__btf)
{
	return calls_forget();
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(ended__raw)
{
	return calls_forget();
}

#endif
