/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CALL_BPF_H
#define __CALL_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "frame.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"

/*
 * The calls of a thread that have not returned. The tool defines struct call, the data stored per
 * call, before it includes this header; call_end() returns it.
 *
 * Calls can be nested. The call that returns is identified by its frame (frame.bpf.h), so a call
 * that was left by longjmp() or an exception does not affect others. It occupies its slot until a
 * call has the same frame, or the thread ends.
 */
#ifndef CALL_DEPTH_MAX
#define CALL_DEPTH_MAX 4
#endif

struct calls {
	__u64 frame[CALL_DEPTH_MAX]; /* 0 for a free slot */
	__u64 caller[CALL_DEPTH_MAX]; /* return address, of a user function */
	__u64 entry[CALL_DEPTH_MAX]; /* address of a user function */
	struct call call[CALL_DEPTH_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, struct calls);
} calls SEC(".maps");

/* Zero initializer, in .rodata because of the 512-byte stack limit. */
static const struct calls calls_zero = {};

static __always_inline int call_slot(struct calls *all, __u64 frame)
{
	for (int i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i] == frame)
			return i;
	return -1;
}

static __always_inline struct calls *calls_find(__u32 tid)
{
	return bpf_map_lookup_elem(&calls, &tid);
}

/* calls_get returns the calls of the current thread, and adds an entry if there is none. */
static __always_inline struct calls *calls_get(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct calls *all = calls_find(tid);

	if (all)
		return all;
	bpf_map_update_elem(&calls, &tid, &calls_zero, BPF_NOEXIST);
	return calls_find(tid);
}

/*
 * call_put returns the data of a new call, or NULL if there is no free slot: then the call is lost.
 */
static __always_inline struct call *call_put(struct calls *all, int i, __u64 frame)
{
	if (i < 0 && all)
		i = call_slot(all, 0);
	if (!all || i < 0 || i >= CALL_DEPTH_MAX) {
		lost_add(map_full);
		return NULL;
	}
	all->frame[i] = frame;
	return &all->call[i];
}

/*
 * call_begin returns the data of a new call, or NULL if it is lost or not all programs are
 * attached. If there is a call with the same frame, it has ended, but its return was not observed.
 */
static __always_inline struct call *call_begin(__u64 frame)
{
	struct calls *all;
	int i;

	if (!observing)
		return NULL;
	all = calls_get();
	i = all ? call_slot(all, frame) : -1;
	if (i >= 0)
		lost_add(unobserved);
	return call_put(all, i, frame);
}

static __always_inline void call_remove(struct calls *all, int i, bool *nested)
{
	__u32 tid = bpf_get_current_pid_tgid();

	all->frame[i] = 0;
	*nested = false;
	for (i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i])
			*nested = true;
	if (!*nested)
		bpf_map_delete_elem(&calls, &tid);
}

/*
 * call_end copies the data of the call that returns, and removes it. It returns false for a call
 * whose entry was not observed. nested reports whether the call was made within another one.
 */
static __always_inline bool call_end(__u64 frame, struct call *call, bool *nested)
{
	struct calls *all = calls_find(bpf_get_current_pid_tgid());
	int i;

	if (!all)
		return false;
	i = call_slot(all, frame);
	if (i < 0 || i >= CALL_DEPTH_MAX)
		return false;
	*call = all->call[i];
	call_remove(all, i, nested);
	return true;
}

static __always_inline int calls_delete(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (calls_find(tid))
		bpf_map_delete_elem(&calls, &tid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended__btf)
{
	return calls_delete();
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(ended__raw)
{
	return calls_delete();
}

SEC("tp/sched/sched_process_exit")
int ended__tp(void *ctx)
{
	return calls_delete();
}

#endif
