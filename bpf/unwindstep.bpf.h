/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWINDSTEP_BPF_H
#define __UNWINDSTEP_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"
#include "unwindtable.bpf.h"

/* The state of a walk through a stack, and the methods to find the caller of a frame (unwind.bpf.h). */

/* User space makes tables. */
const volatile bool unwind_tables = false;
/* The size of a task's stack in the kernel. */
const volatile __u64 unwind_thread_size = 16384;
/* The bits of an address in user space; above may be a signature of the pointer. */
const volatile __u64 unwind_address_mask = (1ULL << 56) - 1;

/* MAX_URETPROBE_DEPTH of the kernel. */
#define MAX_RETURN_INSTANCES 64

/* How a frame was found, in the highest bits of its address. */
enum unwind_how {
	HOW_FRAME_POINTER,
	HOW_TABLE,
	HOW_GO,
	HOW_SIGNAL,
	HOW_CODE,
	HOW_SEARCH,
	HOW_INCOMPLETE = 15 /* no frame: the walk ended although there is a caller */
};
#define UNWIND_HOW_SHIFT 60
#define UNWIND_ADDRESS ((1ULL << UNWIND_HOW_SHIFT) - 1)

/* What a rule counts the caller's stack pointer from. */
enum unwind_base {
	BASE_NONE,
	BASE_SP,
	BASE_FP,
	BASE_AT_FP,
	BASE_PLT,
	BASE_SIGNAL,
	BASE_END
};
#define UNWIND_RULE_GO 0x80

struct unwind_cursor {
	__u64 pc, sp, fp;
	__u64 lr; /* arm64, of the innermost frame and of one that a signal has interrupted */
	__u64 trampoline; /* what functions return to instead of their callers, where uretprobes are */
	__u64 returns; /* struct return_instance: the callers; 0 where there are none */
	bool exact; /* pc is where the thread was interrupted, not a return address */
	__u8 how; /* pc was found */
	bool searched; /* a frame was found by search: the frame pointer may hold anything */
	__u8 pad[5];
	__u64 search_pc, search_sp; /* where a search began */
	__u64 search_code, search_code_size; /* the program's code */
	__u64 search_mapped; /* libraries are below */
	__u32 search_left; /* words that may still be looked up in the mappings */
	__u32 search_pad;
	struct unwind_places places;
};

/* Guarded by busy of the stack's room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_cursor);
} unwind_cursors SEC(".maps");

/*
 * unwind_locate finds the executable mapping of where the thread is, and returns 0 if there is none.
 * A return address can be behind the last instruction of its function, so the byte before counts.
 * This is a global function, as stack_unwind is.
 */
__noinline int unwind_locate(void)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);

	return cur && unwind_place_find(&cur->places, cur->pc - !cur->exact);
}

/* unwind_rule returns the rule for where the thread is, 0 where there is none. */
static __always_inline __u64 unwind_rule(struct unwind_cursor *cur)
{
	struct unwind_place *place = unwind_place_at(&cur->places, cur->places.at);
	__u64 pc = cur->pc - !cur->exact;

	return cur->places.count && unwind_place_holds(place, pc) ? unwind_table_rule(&cur->places, place, pc) : 0;
}

static __always_inline bool unwind_read(void *dst, __u32 size, __u64 address)
{
	return !bpf_probe_read_user(dst, size, (void *)address);
}

/*
 * On both architectures the frame pointer leads to the caller's, which the return address follows.
 * Code without frame pointers uses the register for anything: then it seldom holds an address above
 * the stack pointer.
 */
static __always_inline bool unwind_by_frame_pointer(struct unwind_cursor *cur)
{
	__u64 frame[2];

	if (!cur->fp || cur->fp < cur->sp || !unwind_read(frame, sizeof(frame), cur->fp) || frame[0] == cur->fp)
		return false;
#if defined(bpf_target_x86)
	cur->sp = cur->fp + sizeof(frame);
#else
	cur->sp = 0; /* these are anywhere in the frame: where it ends is not known */
#endif
	cur->fp = frame[0];
	cur->pc = frame[1];
	cur->how = HOW_FRAME_POINTER;
	cur->exact = false;
	return true;
}

/*
 * A compiled function is returned to behind a call. What a frame pointer led to is checked for that
 * in files; code that a program makes itself may be entered in other ways.
 */
static __always_inline bool unwind_address_follows_call(__u64 pc)
{
#if defined(bpf_target_x86)
	const __u8 call_relative = 0xe8, group5 = 0xff, extension = 0x38, call_indirect = 0x10;
	__u8 b[7]; /* the longest call */

	if (!unwind_read(b, sizeof(b), pc - sizeof(b)))
		return true; /* the page is not there now */
	if (b[2] == call_relative)
		return true;
	for (int i = 0; i < 6; i++) {
		if (b[i] == group5 && (b[i + 1] & extension) == call_indirect)
			return true;
	}
	return false;
#else
	const __u32 bl = 0x94000000, bl_mask = 0xfc000000, blr = 0xd63f0000, blr_mask = 0xfefff000;
	__u32 instruction;

	if (!unwind_read(&instruction, sizeof(instruction), pc - sizeof(instruction)))
		return true;
	return (instruction & bl_mask) == bl || (instruction & blr_mask) == blr;
#endif
}

static __always_inline bool unwind_follows_call(const struct unwind_cursor *cur)
{
	return unwind_address_follows_call(cur->pc);
}

/*
 * Where there is no table, the next instructions show where the return address is, if they are a return
 * or adjust the stack pointer and return: as in the trampolines of CPython 3.12 and 3.13 (-X perf) on x86.
 */
static __always_inline bool unwind_by_code(struct unwind_cursor *cur)
{
#if defined(bpf_target_x86)
	struct {
		__u8 add_to_sp[3];
		__s8 room;
		__u8 ret;
	} code;
	const __u8 ret = 0xc3;
	__u64 sp = cur->sp, pc;

	if (!sp || !unwind_read(&code, sizeof(code), cur->pc))
		return false;
	if (code.add_to_sp[0] != ret) {
		if (code.add_to_sp[0] != 0x48 || code.add_to_sp[1] != 0x83 || code.add_to_sp[2] != 0xc4 ||
		    code.room <= 0 || code.ret != ret)
			return false;
		sp += code.room;
	}
	if (!unwind_read(&pc, sizeof(pc), sp))
		return false;
	cur->sp = sp + sizeof(pc);
	cur->pc = pc;
	cur->how = HOW_CODE;
	cur->exact = false;
	return true;
#else
	return false;
#endif
}

/* The registers that the kernel has saved above the stack pointer, for the end of a signal's handler. */
static __always_inline bool unwind_by_signal(struct unwind_cursor *cur)
{
#if defined(bpf_target_x86)
	const __u32 offset = 120; /* of rbp in struct ucontext */
	struct {
		__u64 fp, other[4], sp, pc;
	} saved;
#else
	const __u32 offset = 544; /* of x29 in struct rt_sigframe */
	struct {
		__u64 fp, lr, sp, pc;
	} saved;
#endif

	if (!unwind_read(&saved, sizeof(saved), cur->sp + offset))
		return false;
	cur->sp = saved.sp;
	cur->fp = saved.fp;
	cur->pc = saved.pc;
#if defined(bpf_target_arm64)
	cur->lr = saved.lr;
#endif
	cur->how = HOW_SIGNAL;
	cur->exact = true;
	return true;
}

static __always_inline __s64 unwind_distance(__u64 rule, int shift)
{
	return (__s64)(__s16)(rule >> shift) * 8;
}

/* unwind_caller_sp is the stack pointer that the caller has after the call, 0 if it is not known. */
static __always_inline __u64 unwind_caller_sp(const struct unwind_cursor *cur, __u64 rule)
{
	__s64 distance = unwind_distance(rule, 16);
	__u64 sp = 0;

	switch (rule & 0x7f) {
	case BASE_SP:
		return cur->sp ? cur->sp + distance : 0;
	case BASE_FP:
		return cur->fp + distance;
	case BASE_AT_FP:
		return unwind_read(&sp, sizeof(sp), cur->fp + distance) ? sp : 0;
	case BASE_PLT: /* an entry of 16 bytes, from one of which on something is pushed */
		return cur->sp + 8 + ((cur->pc & 15) >= distance / 8 ? 8 : 0);
	}
	return 0;
}

static __always_inline bool unwind_return_address(const struct unwind_cursor *cur, __u64 rule, __u64 sp,
						  __u64 *pc)
{
	__s64 distance = unwind_distance(rule, 48);

	if (distance)
		return unwind_read(pc, sizeof(*pc), sp + distance);
	*pc = cur->lr;
	return cur->exact;
}

static __always_inline bool unwind_by_rule(struct unwind_cursor *cur, __u64 rule)
{
	__u64 sp = unwind_caller_sp(cur, rule), fp = cur->fp, pc = 0, saved = 0;
	__s64 distance = unwind_distance(rule, 32);

	if ((rule & 0x7f) == BASE_AT_FP)
		saved = fp; /* as in functions that align their stacks */
	else if (distance)
		saved = sp + distance;

	/* A function whose frame is empty has one on x86 all the same: the return address. */
	if (sp < cur->sp || (sp == cur->sp && !cur->exact))
		return false;
	if (!unwind_return_address(cur, rule, sp, &pc))
		return false;
	if (saved && !unwind_read(&fp, sizeof(fp), saved))
		return false;
	cur->sp = sp;
	cur->fp = fp;
	cur->pc = pc;
	cur->how = rule & UNWIND_RULE_GO ? HOW_GO : HOW_TABLE;
	cur->exact = false;
	return true;
}

#endif
