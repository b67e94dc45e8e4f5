/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACKWALK_BPF_H
#define __STACKWALK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"
#include "task.bpf.h"
#include "unwind.bpf.h"

/* Stacks as user space gets them: a head, the addresses, and the mappings that hold these. */

#define PF_KTHREAD 0x00200000

/* The kernel's own walks end at kernel.perf_event_max_stack, 127. */
#define STACKS_DEPTH 512
#define STACKS_BYTES (STACKS_DEPTH * sizeof(__u64))
#define STACKS_MAPPING_WORDS (sizeof(struct stack_mapping) / sizeof(__u64))
#define STACKS_MAPPINGS_BYTES (STACK_MAPPINGS * sizeof(struct stack_mapping))
/* A power of two, as that bounds an index. */
#define STACKS_WORDS (2 * STACKS_DEPTH)

/* The frames of a stack that are kept, the innermost ones. */
const volatile __u32 stack_depth = STACKS_DEPTH;

struct stack_head {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 id; /* of one that things are counted by (stacks.bpf.h) */
	__u32 pid; /* user_stack_pid(), or 0 for a stack of the kernel's */
	__u32 space; /* another one for each address space of a process */
	__u64 caller; /* of the innermost function, where the addresses lack it; else 0 */
	__u32 unwound; /* addresses have in their highest bits how they were found (unwind.bpf.h) */
	__u32 frames; /* addresses; behind them there are mappings */
	__u32 unknown; /* mappings of files that user space has not looked at */
	__u32 pad;
};

#define STACK_MOST_BYTES (sizeof(struct stack_head) + STACKS_BYTES + STACKS_MAPPINGS_BYTES)

/* Keeps the type in the object, for it to be compared with Go's. */
const struct stack_head *stack_head_type __attribute__((unused));

struct stack_room {
	struct stack_head head;
	__u64 addrs[STACKS_WORDS];
	__u64 busy;
};

/* There is no such room on the stack of a program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_room);
} stack_rooms SEC(".maps");

/*
 * The room is the CPU's. Where an interrupt, or another task on a kernel whose programs can
 * be preempted, comes between, its stack is not to be had.
 */
static __always_inline struct stack_room *stack_room_begin(void)
{
	__u32 zero = 0;
	struct stack_room *room = bpf_map_lookup_elem(&stack_rooms, &zero);

	if (!room)
		return NULL;
	if (room->busy) {
		lost_add(program_busy);
		return NULL;
	}
	*(volatile __u64 *)&room->busy = 1;
	return room;
}

static __always_inline void stack_room_end(struct stack_room *room)
{
	*(volatile __u64 *)&room->busy = 0;
}

/*
 * stack_unwind walks from where unwind_begin was to most frames, and returns how many there
 * are. If the walk ends before the outermost frame, one more says so (HOW_INCOMPLETE). It is a global function, as the verifier looks at these once and by themselves: else
 * it would go through all that follows once for each number of frames that there may be.
 */
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
		switch (unwind_step()) {
		case NEXT_FRAME:
			continue;
		case NEXT_NONE:
			return i + 1;
		}
		if (i + 1 >= most)
			return i + 1;
		room->addrs[i + 1] = (__u64)HOW_INCOMPLETE << UNWIND_HOW_SHIFT;
		return i + 2;
	}
	return STACKS_DEPTH;
}

/* The same addresses are another stack in another process, or after it has called exec. */
static __always_inline __u32 stack_space(__u32 pid)
{
	return pid ? (__u64)BPF_CORE_READ(task_current(), mm) >> 6 : 0;
}

/* Copies the mappings of the walk behind the frames, and returns their bytes. */
__noinline __u32 stack_add_mappings(__u32 frames)
{
	__u32 zero = 0;
	struct stack_room *room = bpf_map_lookup_elem(&stack_rooms, &zero);
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);
	__u32 count;

	if (!room || !cur)
		return 0;
	count = cur->places.count;
	for (__u32 i = 0; i < STACK_MAPPINGS && i < count; i++) {
		const __u64 *words = (const __u64 *)&cur->places.place[i].mapping;

		for (__u32 k = 0; k < STACKS_MAPPING_WORDS; k++)
			room->addrs[(frames + i * STACKS_MAPPING_WORDS + k) % STACKS_WORDS] = words[k];
	}
	room->head.unknown = cur->places.unknown;
	return count < STACK_MAPPINGS ? count * sizeof(struct stack_mapping) : STACKS_MAPPINGS_BYTES;
}

/*
 * stack_walk writes a stack into the room, the kernel's or that of process pid, which is
 * the current one. It returns the bytes behind the head, 0 where there is no stack.
 */
static __always_inline __u32 stack_walk(void *ctx, struct stack_room *room, __u32 pid, __u64 flags,
					__u64 caller)
{
	__u32 most = stack_depth < STACKS_DEPTH ? stack_depth : STACKS_DEPTH, mappings = 0;
	struct stack_head *head = &room->head;
	enum unwind_walk walk;
	long bytes;

	head->pid = pid;
	head->space = stack_space(pid);
	head->unknown = 0;
	walk = flags & BPF_F_USER_STACK ? unwind_begin(head->space) : WALK_BY_KERNEL;
	head->unwound = walk == WALK_BY_TABLES;
	if (walk == WALK_NOWHERE)
		return 0;
	if (head->unwound)
		bytes = stack_unwind(most) * sizeof(__u64);
	else
		bytes = bpf_get_stack(ctx, room->addrs, most * sizeof(__u64), flags);
	if (bytes <= 0 || bytes > STACKS_BYTES)
		return 0;
	head->frames = bytes / sizeof(__u64);
	head->caller = head->frames > 1 && (room->addrs[1] & UNWIND_ADDRESS) == caller ? 0 : caller;
	if (head->unwound)
		mappings = stack_add_mappings(head->frames);
	return (__u32)bytes + mappings;
}

/* Set with the PID in the initial PID namespace if the process has none in that of user space. */
#define STACK_OUTSIDE (1U << 31)

/*
 * user_stack_pid returns the PID of the current process in the PID namespace of user space, 0 for
 * a kernel thread, which has no user stack.
 */
static __always_inline __u32 user_stack_pid(void)
{
	struct task_struct *task = task_current();
	__u32 pid = bpf_get_current_pid_tgid() >> 32, local;

	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return 0;
	if (!local_pidns)
		return pid;
	local = task_local_pid(task);
	return local ? local : pid | STACK_OUTSIDE;
}

/*
 * user_caller_at_entry is who called the function whose first instruction the program is
 * at. That has no frame yet, so frame pointers lead past its caller; the kernel makes up
 * for that from 6.11 on (cfa7f3d2c526), on x86 where it knows the instruction.
 */
static __always_inline __u64 user_caller_at_entry(struct pt_regs *ctx)
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
	return caller;
}

/*
 * user_stack_read writes the process's own stack for an event that takes it along, the head
 * first, STACK_MOST_BYTES at the most, and returns its bytes: 0 where there is none. User
 * space takes it out, with all that it calls, where no stack is asked for.
 */
static __noinline __attribute__((unused)) __u32 user_stack_read(void *ctx, void *dst, __u64 caller)
{
	__u32 pid = user_stack_pid(), bytes;
	struct stack_room *room;

	room = pid ? stack_room_begin() : NULL;
	if (!room)
		return 0;
	bytes = stack_walk(ctx, room, pid, BPF_F_USER_STACK, caller);
	if (bytes) {
		room->head.id = 0;
		room->head.time_ns = bpf_ktime_get_ns();
		bytes += sizeof(room->head);
	}
	/* Or clang compares what bytes was made of, and the verifier learns nothing of the sum. */
	barrier_var(bytes);
	if (bytes > STACK_MOST_BYTES || bpf_probe_read_kernel(dst, bytes, room))
		bytes = 0;
	stack_room_end(room);
	return bytes;
}

#endif
