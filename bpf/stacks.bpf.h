/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACKS_BPF_H
#define __STACKS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "event.bpf.h"
#include "map.bpf.h"
#include "stackid.bpf.h"
#include "stackwalk.bpf.h"

/*
 * Stacks that things are counted by. A stack has an id, by which it stands in a table's
 * key; its addresses are sent to user space as it is seen first, and named there while
 * its process still lives. So no map fills up with stacks, and none is told apart by less
 * than the 64 bits of the id.
 */

#define STACKS_SENT (1 << 16)

/*
 * IDs of stacks that were sent, each at one of two places that follow from the ID. If other IDs have
 * taken both places, the stack is sent once more, which user space expects. User space clears the ID
 * of a stack that it drops. This is an array because an access needs no lock, allocates no memory and
 * takes a few ns.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STACKS_SENT);
	__type(key, __u32);
	__type(value, __u64);
} stacks_sent SEC(".maps") USER_SPACE;

/* stack_hash makes an id of the frames that are in the room. A global function, as stack_unwind is. */
__noinline __u64 stack_hash(__u32 frames, __u64 seed)
{
	__u32 zero = 0;
	struct stack_room *room = bpf_map_lookup_elem(&stack_rooms, &zero);
	__u64 hash = seed;

	if (!room)
		return 0;
	for (__u32 i = 0; i < STACKS_DEPTH; i++) {
		if (i >= frames)
			break;
		hash = (hash ^ room->addrs[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	hash *= 0xbf58476d1ce4e5b9ULL;
	hash ^= hash >> 32;
	return hash ? hash : 1;
}

/* stack_place returns where the stack is, or is to be, among those that were sent. */
static __always_inline __u64 *stack_place(__u64 id)
{
	__u32 first = id % STACKS_SENT, second = (id >> 32) % STACKS_SENT;
	__u64 *a = bpf_map_lookup_elem(&stacks_sent, &first);
	__u64 *b = bpf_map_lookup_elem(&stacks_sent, &second);

	if (!a || !b)
		return NULL;
	if (*a == id || (*b != id && !*a))
		return a;
	if (*b == id || !*b)
		return b;
	return id & (1 << 20) ? a : b;
}

/* The least time between two stacks that are sent once more, and when the last one was. */
#define STACK_RESEND_NS 20000000
__u64 stack_resent_ns;

/*
 * A stack is sent when it is first seen. While files of it are not known to user space it is sent
 * again, for user space to look at them: not often, as that would fill the buffer of a slow reader.
 */
static __always_inline void stack_send(void *ctx, struct stack_room *room, __u32 bytes)
{
	struct stack_head *head = &room->head;
	__u64 *place = stack_place(head->id);
	__u32 size = sizeof(*head) + bytes;
	bool sent;

	if (!place)
		return;
	head->time_ns = bpf_ktime_get_ns();
	sent = *place == head->id;
	if (sent) {
		if (!head->unknown || head->time_ns - stack_resent_ns < STACK_RESEND_NS)
			return;
		stack_resent_ns = head->time_ns;
	}
	*place = head->id;
	/* Or clang compares what size was made of, and the verifier learns nothing of the sum. */
	barrier_var(size);
	if (size <= STACK_MOST_BYTES && !event_output(ctx, room, size, head->time_ns))
		return;
	/* User space has a stack that was sent before: then nothing is lost. */
	if (sent)
		return;
	*place = 0;
	lost_add(buffer_full);
}

static __always_inline stack_id_t stack_take(void *ctx, __u32 pid, __u64 flags, __u64 caller)
{
	struct stack_room *room = stack_room_begin();
	struct stack_head *head;
	__u64 id = 0;
	__u32 bytes;

	if (!room)
		return 0;
	head = &room->head;
	bytes = stack_walk(ctx, room, pid, flags, caller);
	if (bytes) {
		id = stack_hash(head->frames, ((__u64)head->space << 32 | pid) ^ head->caller);
		head->id = id;
		stack_send(ctx, room, bytes);
	}
	stack_room_end(room);
	return id;
}

/* kernel_stack is the id of the current task's stack in the kernel, 0 where it has none. */
static __always_inline stack_id_t kernel_stack(void *ctx)
{
	return stack_take(ctx, 0, 0, 0);
}

static __always_inline stack_id_t user_stack_below(void *ctx, __u64 caller)
{
	__u32 pid = user_stack_pid();

	return pid ? stack_take(ctx, pid, BPF_F_USER_STACK, caller) : 0;
}

/* user_stack is the id of the current process's own stack, 0 for a thread of the kernel. */
static __always_inline stack_id_t user_stack(void *ctx)
{
	return user_stack_below(ctx, 0);
}

/* user_stack_at_entry is user_stack for a program at the first instruction of a function. */
static __always_inline stack_id_t user_stack_at_entry(struct pt_regs *ctx)
{
	return user_stack_below(ctx, user_caller_at_entry(ctx));
}

#endif
