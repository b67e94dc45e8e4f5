/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACKS_BPF_H
#define __STACKS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "lost.bpf.h"
#include "task.bpf.h"
#include "unwind.bpf.h"

/*
 * Stacks that things are counted by. A stack has an id, by which it stands in a table's
 * key; its addresses are sent to user space as it is seen first, and named there while
 * its process still lives. So no map fills up with stacks, and none is told apart by less
 * than the 64 bits of the id.
 */

#define PF_KTHREAD 0x00200000

/* The kernel's own walks end at kernel.perf_event_max_stack, 127. */
#define STACKS_DEPTH 512
#define STACKS_BYTES (STACKS_DEPTH * sizeof(__u64))

/* The frames of a stack that are kept, the innermost ones. */
const volatile __u32 stack_depth = STACKS_DEPTH;

struct stack_head {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 id;
	__u32 pid; /* the process, or 0 for a stack of the kernel's */
	__u32 space; /* another one for each address space of a process */
	__u64 caller; /* of the innermost function, where the addresses lack it; else 0 */
	__u32 unwound; /* addresses have in their highest bits how they were found (unwind.bpf.h) */
	__u32 pad;
};

/* Keeps the type in the object, for it to be compared with Go's. */
const struct stack_head *stack_head_type __attribute__((unused));

/* What is sent: the head and the addresses that there are. */
struct stack_room {
	struct stack_head head;
	__u64 addrs[STACKS_DEPTH];
	__u64 busy;
};

/* There is no such room on the stack of a program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_room);
} stack_rooms SEC(".maps");

#define STACKS_SENT (1 << 16)

/*
 * Which stacks were sent, each at one of two places that follow from its id. Where others
 * have taken both it is sent once more, which user space expects. An array, as it needs
 * neither locks nor memory at a bad time, and takes a few ns.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STACKS_SENT);
	__type(key, __u32);
	__type(value, __u64);
} stacks_sent SEC(".maps");

/*
 * stack_hash makes an id of the frames that are in the room. It is a global function, as
 * the verifier looks at these once and by themselves: else it would go through all that
 * follows once for each number of frames that there may be.
 */
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

/* stack_unwind walks from where unwind_begin was to most frames, and returns how many there are. */
__noinline __u32 stack_unwind(__u32 most)
{
	__u32 zero = 0;
	struct stack_room *room = bpf_map_lookup_elem(&stack_rooms, &zero);
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);

	if (!room || !cur)
		return 0;
	for (__u32 i = 0; i < STACKS_DEPTH; i++) {
		if (i >= most)
			return i;
		room->addrs[i] = cur->pc | (__u64)cur->how << UNWIND_HOW_SHIFT;
		if (!unwind_step())
			return i + 1;
	}
	return STACKS_DEPTH;
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

static __always_inline void stack_send(void *ctx, struct stack_room *room, __u32 bytes)
{
	struct stack_head *head = &room->head;
	__u64 *place = stack_place(head->id);

	if (!place || *place == head->id)
		return;
	*place = head->id;
	head->time_ns = bpf_ktime_get_ns();
	if (event_send(ctx, room, sizeof(*head) + bytes, head->time_ns))
		*place = 0;
}

/* The same addresses are another stack in another process, or after it has called exec. */
static __always_inline __u32 stack_space(__u32 pid)
{
	return pid ? (__u64)BPF_CORE_READ(task_current(), mm) >> 6 : 0;
}

/* stack_walk writes a stack into the room, and returns its bytes. */
static __always_inline long stack_walk(void *ctx, struct stack_room *room, __u64 flags)
{
	__u32 most = stack_depth < STACKS_DEPTH ? stack_depth : STACKS_DEPTH;

	room->head.unwound = flags & BPF_F_USER_STACK && unwind_begin(room->head.pid, room->head.space);
	if (room->head.unwound)
		return stack_unwind(most) * sizeof(__u64);
	return bpf_get_stack(ctx, room->addrs, most * sizeof(__u64), flags);
}

static __always_inline __u64 stack_fill(void *ctx, struct stack_room *room, __u32 pid, __u64 flags,
					__u64 caller)
{
	long bytes;

	room->head.pid = pid;
	room->head.space = stack_space(pid);
	bytes = stack_walk(ctx, room, flags);
	if (bytes <= 0 || bytes > STACKS_BYTES)
		return 0;
	room->head.caller = (room->addrs[1] & UNWIND_ADDRESS) == caller ? 0 : caller;
	room->head.id = stack_hash(bytes / sizeof(__u64),
				   ((__u64)room->head.space << 32 | pid) ^ room->head.caller);
	stack_send(ctx, room, bytes);
	return room->head.id;
}

/*
 * The room is the CPU's. Where an interrupt, or another task on a kernel whose programs can
 * be preempted, comes between, its stack is not to be had.
 */
static __always_inline __u64 stack_take(void *ctx, __u32 pid, __u64 flags, __u64 caller)
{
	__u32 zero = 0;
	struct stack_room *room = bpf_map_lookup_elem(&stack_rooms, &zero);
	__u64 id;

	if (!room)
		return 0;
	if (room->busy) {
		lost_add(program_busy);
		return 0;
	}
	*(volatile __u64 *)&room->busy = 1;
	id = stack_fill(ctx, room, pid, flags, caller);
	*(volatile __u64 *)&room->busy = 0;
	return id;
}

/* kernel_stack is the id of the current task's stack in the kernel, 0 where it has none. */
static __always_inline __u64 kernel_stack(void *ctx)
{
	return stack_take(ctx, 0, 0, 0);
}

static __always_inline __u64 user_stack_below(void *ctx, __u64 caller)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (!pid || BPF_CORE_READ(task_current(), flags) & PF_KTHREAD)
		return 0;
	return stack_take(ctx, pid, BPF_F_USER_STACK, caller);
}

/* user_stack is the id of the current process's own stack, 0 for a thread of the kernel. */
static __always_inline __u64 user_stack(void *ctx)
{
	return user_stack_below(ctx, 0);
}

/*
 * user_stack_at_entry is user_stack for a program at the first instruction of a function.
 * That has no frame yet, so frame pointers lead past its caller; the kernel makes up for
 * that from 6.11 on (cfa7f3d2c526), on x86 where it knows the instruction.
 */
static __always_inline __u64 user_stack_at_entry(struct pt_regs *ctx)
{
	__u64 caller = 0;

#if defined(bpf_target_x86)
	const __u16 user32_cs = 0x23;

	if (ctx->cs != user32_cs)
		bpf_probe_read_user(&caller, sizeof(caller), (void *)PT_REGS_SP(ctx));
#elif defined(bpf_target_arm64)
	const __u64 mode32 = 0x10;

	if (!(((struct user_pt_regs *)ctx)->pstate & mode32))
		caller = PT_REGS_RET(ctx);
#endif
	return user_stack_below(ctx, caller);
}

#endif
