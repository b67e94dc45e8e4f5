/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWINDSTEP_BPF_H
#define __UNWINDSTEP_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"
#include "unwindtable.bpf.h"

/* The state of a walk through a stack, and the methods to find the caller of a frame (unwind.bpf.h). */

/* User space creates unwind tables. */
const volatile bool unwind_tables = false;
/* The size of a kernel stack in bytes. */
const volatile __u64 unwind_thread_size = 16384;
/* The bits of a user address. Higher bits can have a signature of the pointer. */
const volatile __u64 unwind_address_mask = (1ULL << 56) - 1;

/* MAX_URETPROBE_DEPTH of the kernel. */
#define MAX_RETURN_INSTANCES 64

/* How the address of a frame was found, in its highest bits. */
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

/* What the caller's stack pointer is computed from. */
enum unwind_base {
	BASE_NONE,
	BASE_SP,
	BASE_FP,
	BASE_AT_FP,
	BASE_PLT,
	BASE_SIGNAL,
	BASE_END,
	BASE_OTHER /* the unwind table describes the frame in a way that a rule cannot */
};

/* Flags of a rule, in addition to its base. */
enum unwind_flag {
	UNWIND_RULE_GO = 0x80,
};

struct unwind_cursor {
	__u64 pc, sp, fp;
	__u64 lr; /* arm64: of the innermost frame, and of frames interrupted by a signal */
	__u64 trampoline; /* return address of calls with a uretprobe */
	__u64 returns; /* struct return_instance: the original return addresses, 0 for none */
	bool exact; /* pc is where the thread was interrupted, not a return address */
	__u8 how; /* enum unwind_how of pc */
	bool searched; /* a frame was found by search: the frame pointer can have any value */
	__u8 pad[5];
	__u64 search_pc, search_sp; /* where the search began */
	__u64 search_code, search_code_size; /* the program's code */
	__u64 search_mapped; /* libraries are mapped below this address */
	__u32 search_left; /* remaining lookups of words in the mappings */
	__u32 search_frames; /* frames below the first one that a search found, 0 for none */
	__u32 frames; /* number of frames in the buffer */
	__u32 pad2;
	struct unwind_mappings mappings;
};

/* Protected by stack_buf.busy. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_cursor);
} unwind_cursors SEC(".maps");

/*
 * unwind_find finds the executable mapping that contains the address, and returns 0 if there is
 * none. A global function, for the same reason as stack_unwind().
 */
__noinline int unwind_find(__u64 address)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);

	return cur && unwind_mapping_find(&cur->mappings, address);
}

/* unwind_rule returns the rule for an address in the mapping that was found last, 0 if there is none. */
static __always_inline __u64 unwind_rule(struct unwind_cursor *cur, __u64 address)
{
	const struct unwind_mapping *m = unwind_mapping_at(&cur->mappings, cur->mappings.at);

	if (!cur->mappings.count || !unwind_mapping_contains(m, address))
		return 0;
	return unwind_table_rule(&cur->mappings, m, address);
}

/*
 * A return address can be after the last instruction of its function, so the byte before it is
 * looked up.
 */
static __always_inline __u64 unwind_code(const struct unwind_cursor *cur)
{
	return cur->pc - !cur->exact;
}

static __always_inline bool unwind_read(void *dst, __u32 size, __u64 address)
{
	return !bpf_probe_read_user(dst, size, (void *)address);
}

/*
 * On both architectures the frame pointer points to the caller's frame pointer, which the return
 * address follows. Code without frame pointers uses the register for anything, rarely for an
 * address above the stack pointer.
 */
static __always_inline bool unwind_by_frame_pointer(struct unwind_cursor *cur)
{
	__u64 frame[2];

	if (!cur->fp || cur->fp < cur->sp || !unwind_read(frame, sizeof(frame), cur->fp) || frame[0] == cur->fp)
		return false;
#if defined(bpf_target_x86)
	cur->sp = cur->fp + sizeof(frame);
#else
	cur->sp = 0; /* unknown: the two words can be anywhere in the frame */
#endif
	cur->fp = frame[0];
	cur->pc = frame[1];
	cur->how = HOW_FRAME_POINTER;
	cur->exact = false;
	return true;
}

/*
 * In compiled code a return address follows a call. Return addresses that were found by frame
 * pointer are checked for that in files; code that was generated at run time can be entered in
 * other ways.
 */
static __always_inline bool unwind_address_follows_call(__u64 pc)
{
#if defined(bpf_target_x86)
	const __u8 call_relative = 0xe8, group5 = 0xff, extension = 0x38, call_indirect = 0x10;
	__u8 b[7]; /* the longest call */

	if (!unwind_read(b, sizeof(b), pc - sizeof(b)))
		return true; /* the page is not resident */
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
 * Without a table, the next instructions show where the return address is, if they are a return, or
 * adjust the stack pointer and return, as in the trampolines of CPython 3.12 and 3.13 (-X perf) on
 * x86.
 */
static __always_inline bool unwind_by_code(struct unwind_cursor *cur)
{
#if defined(bpf_target_x86)
	struct {
		__u8 add_to_sp[3];
		__s8 size;
		__u8 ret;
	} code;
	const __u8 ret = 0xc3;
	__u64 sp = cur->sp, pc;

	if (!sp || !unwind_read(&code, sizeof(code), cur->pc))
		return false;
	if (code.add_to_sp[0] != ret) {
		if (code.add_to_sp[0] != 0x48 || code.add_to_sp[1] != 0x83 || code.add_to_sp[2] != 0xc4 ||
		    code.size <= 0 || code.ret != ret)
			return false;
		sp += code.size;
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

/* Restores the registers that the kernel saved on the stack when it called a signal handler. */
static __always_inline bool unwind_by_signal(struct unwind_cursor *cur)
{
#if defined(bpf_target_x86)
	const __u32 fp_at = 120, sp_at = 160; /* rbp, rsp and rip in struct ucontext */
#else
	const __u32 fp_at = 544, sp_at = 560; /* x29, x30, sp and pc in struct rt_sigframe */
#endif
	__u64 fp_lr[2], sp_pc[2]; /* two reads, because the stack of BPF programs is small */

	if (!unwind_read(fp_lr, sizeof(fp_lr), cur->sp + fp_at) || !unwind_read(sp_pc, sizeof(sp_pc), cur->sp + sp_at))
		return false;
	cur->fp = fp_lr[0];
	cur->sp = sp_pc[0];
	cur->pc = sp_pc[1];
#if defined(bpf_target_arm64)
	cur->lr = fp_lr[1];
#endif
	cur->how = HOW_SIGNAL;
	cur->exact = true;
	return true;
}

static __always_inline __s64 unwind_distance(__u64 rule, int shift)
{
	return (__s64)(__s16)(rule >> shift) * 8;
}

/* unwind_caller_sp returns the CFA: the caller's stack pointer after the return, 0 if unknown. */
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
	case BASE_PLT: /* an entry has 16 bytes, and pushes a word before the offset distance / 8 */
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
		saved = fp; /* in functions that align their stack */
	else if (distance)
		saved = sp + distance;

	/*
	 * Only the innermost frame can be empty, on arm64; on x86 it contains at least the return
	 * address. The caller's stack is another one, at any address, only in Go functions that switch
	 * to another stack: their rules are the only ones of Go with the frame pointer.
	 */
	if ((rule & (UNWIND_RULE_GO | 0x7f)) != (UNWIND_RULE_GO | BASE_FP) &&
	    (sp < cur->sp || (sp == cur->sp && !cur->exact)))
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
