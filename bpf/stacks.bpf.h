/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACKS_BPF_H
#define __STACKS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "event.bpf.h"
#include "loop.bpf.h"
#include "map.bpf.h"
#include "stackid.bpf.h"
#include "stackwalk.bpf.h"

/*
 * Stacks as keys of tables. A stack is identified by a 64-bit hash. Its addresses are sent to user
 * space when it first occurs, and symbolized while its process lives. So no map fills up with
 * stacks, and only stacks with the same 64-bit hash collide.
 */

#define STACKS_SENT (1 << 16)

/*
 * IDs of stacks that were sent, each in one of two slots, whose indexes are derived from the ID. If
 * other IDs occupy both slots, the stack is sent again, which user space expects. User space clears
 * the ID of a stack that it drops. This is an array because an access needs no lock, allocates no
 * memory and takes a few ns.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STACKS_SENT);
	__type(key, __u32);
	__type(value, __u64);
} stacks_sent SEC(".maps") USER_SPACE;

struct stack_hashing {
	const struct stack_buf *buf;
	__u32 frames;
	__u64 hash;
};

static __always_inline bool stack_hash_frame(void *state, __u32 i)
{
	struct stack_hashing *s = state;

	if (i >= s->frames)
		return false;
	s->hash = (s->hash ^ s->buf->addrs[i % STACKS_WORDS]) * 0x9e3779b97f4a7c15ULL;
	s->hash ^= s->hash >> 29;
	return true;
}

/*
 * stack_hash returns the ID of the frames in the buffer. A global function, for the same reason as
 * stack_unwind().
 */
__noinline __u64 stack_hash(__u32 frames, __u64 seed)
{
	__u32 zero = 0;
	struct stack_hashing s = {
		.buf = bpf_map_lookup_elem(&stack_bufs, &zero),
		.frames = frames,
		.hash = seed,
	};

	if (!s.buf)
		return 0;
	loop_while(STACKS_DEPTH, stack_hash_frame, &s);
	s.hash *= 0xbf58476d1ce4e5b9ULL;
	s.hash ^= s.hash >> 32;
	return s.hash ? s.hash : 1;
}

/* stack_sent_slot returns the slot that has the ID, or the one where it is to be stored. */
static __always_inline __u64 *stack_sent_slot(__u64 id)
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

/*
 * The interval in which urgent stacks wake the reader, if that of other events, event_wakeup_ns, has not
 * passed.
 */
#define STACK_URGENT_WAKEUP_NS 40000000

/* Minimum time between two stacks that are sent again, and the time of the last one. */
#define STACK_RESEND_NS 20000000
__u64 stack_resent_ns;

/*
 * Sends a stack when it first occurs. While it has mappings of files that user space has not read,
 * it is sent again, so that user space reads them; but not often, because that would fill the
 * buffer of a slow reader.
 */
static __always_inline void stack_send(void *ctx, struct stack_buf *buf, __u32 bytes)
{
	struct stack_head *head = &buf->head;
	__u64 *slot = stack_sent_slot(head->id);
	__u32 size = sizeof(*head) + bytes;
	bool sent, wake;

	if (!slot)
		return;
	head->time_ns = bpf_ktime_get_ns();
	sent = *slot == head->id;
	if (sent) {
		if (!head->unknown || head->time_ns - stack_resent_ns < STACK_RESEND_NS)
			return;
		stack_resent_ns = head->time_ns;
	}
	*slot = head->id;
	wake = head->urgent && head->time_ns - event_last_wakeup_ns >= STACK_URGENT_WAKEUP_NS;
	/*
	 * Otherwise clang checks the operands of the sum, and the verifier does not know its
	 * bounds.
	 */
	barrier_var(size);
	if (size <= STACK_MAX_BYTES && !event_output_wake(ctx, buf, size, head->time_ns, wake))
		return;
	/* User space has the stack from before: nothing is lost. */
	if (sent)
		return;
	*slot = 0;
	lost_add(buffer_full);
}

static __always_inline stack_id_t stack_record(void *ctx, __u32 pid, __u64 flags, __u64 caller)
{
	struct stack_buf *buf = stack_buf_acquire();
	struct stack_head *head;
	__u64 id = 0;
	__u32 bytes;

	if (!buf)
		return 0;
	head = &buf->head;
	bytes = stack_walk(ctx, buf, pid, flags, caller);
	if (bytes) {
		id = stack_hash(head->frames, ((__u64)head->space << 32 | pid) ^ head->caller);
		head->id = id;
		stack_send(ctx, buf, bytes);
	}
	stack_buf_release(buf);
	return id;
}

/* kernel_stack returns the ID of the current task's kernel stack, 0 if there is none. */
static __always_inline stack_id_t kernel_stack(void *ctx)
{
	return stack_record(ctx, 0, 0, 0);
}

static __always_inline stack_id_t user_stack_from(void *ctx, __u64 caller)
{
	__u32 pid = user_stack_pid();

	return pid ? stack_record(ctx, pid, BPF_F_USER_STACK, caller) : 0;
}

/* user_stack returns the ID of the current process's user stack, 0 for a kernel thread. */
static __always_inline stack_id_t user_stack(void *ctx)
{
	return user_stack_from(ctx, 0);
}

/* user_stack_at_entry is user_stack for a program at the first instruction of a function. */
static __always_inline stack_id_t user_stack_at_entry(struct pt_regs *ctx)
{
	return user_stack_from(ctx, user_caller_at_entry(ctx));
}

#endif
