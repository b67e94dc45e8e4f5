/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACKWALK_BPF_H
#define __STACKWALK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "loop.bpf.h"
#include "lost.bpf.h"
#include "task.bpf.h"
#include "unwind.bpf.h"

/* Stacks as sent to user space: a head, the addresses, and the mappings that contain them. */

#define PF_KTHREAD 0x00200000

/* Stacks unwound by the kernel have at most kernel.perf_event_max_stack frames, by default 127. */
#define STACKS_DEPTH 512
#define STACKS_BYTES (STACKS_DEPTH * sizeof(__u64))
#define STACKS_MAPPING_WORDS (sizeof(struct stack_mapping) / sizeof(__u64))
#define STACKS_MAPPINGS_BYTES (STACK_MAPPINGS * sizeof(struct stack_mapping))
/* A power of two, which makes it easy to bound an index. */
#define STACKS_WORDS (2 * STACKS_DEPTH)

/* Maximum number of frames per stack; the innermost ones are kept. */
const volatile __u32 stack_depth = STACKS_DEPTH;

struct stack_head {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 id; /* only of stacks that are keys (stacks.bpf.h) */
	__u32 pid; /* user_stack_pid(), or 0 for a kernel stack */
	__u32 space; /* differs between the address spaces that a process has over time */
	__u64 caller; /* caller of the innermost function if the addresses lack it, otherwise 0 */
	__u32 unwound; /* 1 if the highest bits of addresses are an enum unwind_how */
	__u32 frames; /* number of addresses; they are followed by mappings */
	__u32 unknown; /* mappings of files that user space has not read */
	__u32 urgent; /* not 0 if user space needs the process to symbolize the stack */
};

#define STACK_MAX_BYTES (sizeof(struct stack_head) + STACKS_BYTES + STACKS_MAPPINGS_BYTES)

enum stack_pid_flag {
	/* set with the PID in the initial PID namespace if the process has none in that of user space */
	STACK_OUTSIDE = 1U << 31,
};

/* Keeps types in the BTF of the object, for comparison with the Go types and constants. */
struct stack_types {
	struct stack_head head;
	struct unwind_leaf leaf;
	struct unwind_node node;
	enum unwind_limit limit;
	enum unwind_how how;
	enum unwind_base base;
	enum unwind_flag flag;
	enum stack_mapping_kind kind;
	enum stack_pid_flag pid_flag;
};

const struct stack_types *stack_types_type __attribute__((unused));

struct stack_buf {
	struct stack_head head;
	__u64 addrs[STACKS_WORDS];
	__u64 busy;
};

/* Too large for the stack of a program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_buf);
} stack_bufs SEC(".maps");

/*
 * The buffer is per CPU. If a program that uses it is interrupted, or preempted in kernels where
 * that is possible, the interrupting program gets no stack.
 */
static __always_inline struct stack_buf *stack_buf_acquire(void)
{
	__u32 zero = 0;
	struct stack_buf *buf = bpf_map_lookup_elem(&stack_bufs, &zero);

	if (!buf)
		return NULL;
	if (buf->busy) {
		lost_add(program_busy);
		return NULL;
	}
	*(volatile __u64 *)&buf->busy = 1;
	return buf;
}

static __always_inline void stack_buf_release(struct stack_buf *buf)
{
	*(volatile __u64 *)&buf->busy = 0;
}

struct stack_unwinding {
	struct stack_buf *buf;
	struct unwind_cursor *cur;
	__u32 max_frames;
};

/* stack_unwind_frame stores frame i, and returns false if the walk ends. */
static __always_inline bool stack_unwind_frame(void *state, __u32 i)
{
	struct stack_unwinding *s = state;
	struct unwind_cursor *cur = s->cur;
	__u32 end;

	if (i >= s->max_frames)
		return false;
	s->buf->addrs[i % STACKS_WORDS] = cur->pc | (__u64)cur->how << UNWIND_HOW_SHIFT;
	cur->frames = i + 1;
	switch (unwind_step()) {
	case NEXT_FRAME:
		if (cur->how == HOW_SEARCH && !cur->search_frames)
			cur->search_frames = i + 1;
		return true;
	case NEXT_NONE:
		return false;
	}
	/* From the map: the verifier would check the loop for each value of a variable. */
	end = cur->search_frames ? cur->search_frames : cur->frames;
	if (end < s->max_frames)
		s->buf->addrs[end++ % STACKS_WORDS] = (__u64)HOW_INCOMPLETE << UNWIND_HOW_SHIFT;
	cur->frames = end;
	return false;
}

/*
 * stack_unwind unwinds up to max_frames frames from the state that unwind_begin() has set, and
 * returns their number. If the walk ends before the outermost frame, an entry is added that reports
 * this (HOW_INCOMPLETE), and frames from the first one on that a search found are left out: the
 * result of a search is certain only if it leads to the outermost frame.
 *
 * It is a global function, because the verifier checks these once and separately: otherwise it
 * would check all following code for each possible number of frames.
 */
__noinline __u32 stack_unwind(__u32 max_frames)
{
	__u32 zero = 0;
	struct stack_unwinding s = {
		.buf = bpf_map_lookup_elem(&stack_bufs, &zero),
		.cur = bpf_map_lookup_elem(&unwind_cursors, &zero),
		.max_frames = max_frames,
	};

	if (!s.buf || !s.cur)
		return 0;
	s.cur->frames = 0;
	loop_while(STACKS_DEPTH, stack_unwind_frame, &s);
	return s.cur->frames;
}

/* Distinguishes equal addresses in different processes, and before and after an exec. */
static __always_inline __u32 stack_space(__u32 pid)
{
	return pid ? (__u64)BPF_CORE_READ(task_current(), mm) >> 6 : 0;
}

/* Appends the mappings of the walk to the frames, and returns their size in bytes. */
__noinline __u32 stack_add_mappings(__u32 frames)
{
	__u32 zero = 0;
	struct stack_buf *buf = bpf_map_lookup_elem(&stack_bufs, &zero);
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);
	__u32 count;

	if (!buf || !cur)
		return 0;
	count = cur->mappings.count;
	for (__u32 i = 0; i < STACK_MAPPINGS && i < count; i++) {
		__u32 at = frames + i * STACKS_MAPPING_WORDS;

		barrier_var(at); /* the verifier needs the register that is compared */
		if (at > STACKS_WORDS - STACKS_MAPPING_WORDS)
			break;
		bpf_probe_read_kernel(&buf->addrs[at], sizeof(struct stack_mapping), &cur->mappings.entries[i].mapping);
	}
	buf->head.unknown = cur->mappings.unknown;
	buf->head.urgent = cur->mappings.unknown | cur->mappings.anonymous;
	return count < STACK_MAPPINGS ? count * sizeof(struct stack_mapping) : STACKS_MAPPINGS_BYTES;
}

/*
 * stack_walk writes a stack to the buffer: the kernel stack, or the user stack of the current
 * process, whose PID is pid. It returns the size in bytes of what follows the head, 0 without a
 * stack.
 */
static __always_inline __u32 stack_walk(void *ctx, struct stack_buf *buf, __u32 pid, __u64 flags,
					__u64 caller)
{
	__u32 max_frames = stack_depth < STACKS_DEPTH ? stack_depth : STACKS_DEPTH, mappings = 0;
	struct stack_head *head = &buf->head;
	enum unwind_walk walk;
	long bytes;

	head->pid = pid;
	head->space = stack_space(pid);
	head->unknown = 0;
	head->urgent = !!pid; /* unless the stack contains the mappings */
	walk = flags & BPF_F_USER_STACK ? unwind_begin(head->space) : WALK_BY_KERNEL;
	head->unwound = walk == WALK_BY_TABLES;
	if (walk == WALK_NONE)
		return 0;
	if (head->unwound)
		bytes = stack_unwind(max_frames) * sizeof(__u64);
	else
		bytes = bpf_get_stack(ctx, buf->addrs, max_frames * sizeof(__u64), flags);
	if (bytes <= 0 || bytes > STACKS_BYTES)
		return 0;
	head->frames = bytes / sizeof(__u64);
	head->caller = head->frames > 1 && (buf->addrs[1] & UNWIND_ADDRESS) == caller ? 0 : caller;
	if (head->unwound)
		mappings = stack_add_mappings(head->frames);
	return (__u32)bytes + mappings;
}

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
 * user_caller_at_entry returns the return address at the first instruction of a function. There is
 * no frame yet, so unwinding by frame pointers skips the caller. The kernel corrects that from 6.11
 * on (cfa7f3d2c526), on x86 if it recognizes the instruction.
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
 * user_stack_read writes the user stack of the current process for an event that contains it: the
 * head first, at most STACK_MAX_BYTES. It returns the size in bytes, 0 without a stack. User space
 * removes this function and its callees from programs if no stack is requested.
 */
static __noinline __attribute__((unused)) __u32 user_stack_read(void *ctx, void *dst, __u64 caller)
{
	__u32 pid = user_stack_pid(), bytes;
	struct stack_buf *buf;

	buf = pid ? stack_buf_acquire() : NULL;
	if (!buf)
		return 0;
	bytes = stack_walk(ctx, buf, pid, BPF_F_USER_STACK, caller);
	if (bytes) {
		buf->head.id = 0;
		buf->head.time_ns = bpf_ktime_get_ns();
		bytes += sizeof(buf->head);
	}
	/*
	 * Otherwise clang checks the operands of the sum, and the verifier does not know its
	 * bounds.
	 */
	barrier_var(bytes);
	if (bytes > STACK_MAX_BYTES || bpf_probe_read_kernel(dst, bytes, buf))
		bytes = 0;
	stack_buf_release(buf);
	return bytes;
}

#endif
