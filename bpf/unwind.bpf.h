/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWIND_BPF_H
#define __UNWIND_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "loop.bpf.h"
#include "task.bpf.h"
#include "unwindsearch.bpf.h"
#include "unwindstep.bpf.h"
#include "unwindtable.bpf.h"

/*
 * Unwinds the user stack of the current task with unwind tables (unwindtable.bpf.h), starting at
 * its user registers. Without a table, a frame is unwound by frame pointer, as the kernel does. The
 * walk ends at an address that no executable mapping contains.
 */

/*
 * unwind_returns finds the trampoline that uretprobes use as return address, and the original ones.
 */
static __always_inline void unwind_returns(struct unwind_cursor *cur)
{
	struct task_struct *task = task_current();

	cur->returns = 0;
	if (!bpf_core_field_exists(task->utask) || !bpf_core_type_exists(struct xol_area))
		return;
	cur->returns = (__u64)BPF_CORE_READ(task, utask, return_instances);
	if (cur->returns)
		cur->trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr) & unwind_address_mask;
}

/*
 * unwind_returns_next goes to the next return instance, and returns false if there is none, or if
 * the previous one was that of this frame.
 */
static __always_inline bool unwind_returns_next(void *state, __u32 i)
{
	struct unwind_cursor *cur = state;
	struct return_instance *instance = (void *)cur->returns;
#if defined(bpf_target_x86)
	__u64 slot = cur->sp - 8;
#else
	__u64 slot = cur->sp;
#endif
	bool found;

	if (!instance)
		return false;
	found = BPF_CORE_READ(instance, stack) >= slot;
	if (found)
		cur->pc = BPF_CORE_READ(instance, orig_ret_vaddr);
	cur->returns = (__u64)BPF_CORE_READ(instance, next);
	return !found;
}

/*
 * unwind_original replaces the trampoline with the original return address. Instances are in the
 * order of frames; those below this frame have returned, or belong to the same call.
 */
static __always_inline void unwind_original(struct unwind_cursor *cur)
{
	loop_while(MAX_RETURN_INSTANCES, unwind_returns_next, cur);
}

/* The result of a step. */
enum unwind_next {
	NEXT_UNKNOWN, /* the caller was not found */
	NEXT_FRAME,
	NEXT_NONE, /* this is the outermost frame */
};

/*
 * unwind_is_outermost reports whether code without a rule has no caller. The ABIs clear the frame
 * pointer in the outermost frame: in the first function of a thread, and where a program starts.
 * Other code without a rule, such as assembly, can use the register for a 0, and in a file that user
 * space has not read, any code is without a rule: then only the start of a program is recognized.
 */
static __always_inline bool unwind_is_outermost(const struct unwind_cursor *cur, bool unread)
{
	const __u64 start_bytes = 64; /* that the first function of a program has pushed */
	__u64 start;

	if (cur->fp)
		return false;
	if (!cur->exact && !unread)
		return true;
	start = BPF_CORE_READ(task_current(), mm, start_stack);
	return start - cur->sp < start_bytes;
}

/*
 * unwind_step goes to the caller, and returns an enum unwind_next. A global function, for the same
 * reason as stack_unwind().
 */
__noinline int unwind_step(void)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);
	const struct unwind_mapping *m;
	bool moved = false, unread;
	__u64 rule;

	if (!cur)
		return NEXT_UNKNOWN;
	rule = unwind_rule(cur, unwind_code(cur));
	unread = unwind_mapping_at(&cur->mappings, cur->mappings.at)->unread;
	switch (rule & 0x7f) {
	case BASE_END:
		return NEXT_NONE;
	case BASE_NONE:
	case BASE_OTHER:
		break;
	case BASE_SIGNAL:
		moved = unwind_by_signal(cur);
		break;
	default:
		moved = unwind_by_rule(cur, rule);
	}
	if (!moved && !unwind_by_code(cur) && !(rule == 0 && unwind_search(cur)) && !unwind_by_frame_pointer(cur))
		return rule == 0 && unwind_is_outermost(cur, unread) ? NEXT_NONE : NEXT_UNKNOWN;
	cur->pc &= unwind_address_mask;
	if (cur->returns && cur->pc == cur->trampoline)
		unwind_original(cur);
	if (!cur->pc)
		return NEXT_NONE;
	if (!unwind_find(unwind_code(cur)))
		return NEXT_UNKNOWN;
	if (cur->how != HOW_FRAME_POINTER && !cur->searched)
		return NEXT_FRAME;
	m = unwind_mapping_at(&cur->mappings, cur->mappings.at);
	if (m->mapping.file.kind == MAPPING_FILE && !unwind_follows_call(cur))
		return NEXT_UNKNOWN;
	return NEXT_FRAME;
}

/* The user registers of the current task, as saved when it entered the kernel. */
static __always_inline struct pt_regs *unwind_registers(void)
{
	/* From 5.15 on (dd6e10fbd9fb). Before, they are read from the end of the kernel stack. */
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	return BPF_CORE_READ(task_current(), stack) + unwind_thread_size - bpf_core_type_size(struct pt_regs);
}

/* unwind_start reads the registers, and returns false for 32-bit programs. */
static __always_inline bool unwind_start(struct unwind_cursor *cur)
{
	struct pt_regs *regs = unwind_registers();

#if defined(bpf_target_x86)
	const __u16 user32_cs = 0x23;

	if (BPF_CORE_READ(regs, cs) == user32_cs)
		return false;
	cur->pc = BPF_CORE_READ(regs, ip);
	cur->sp = BPF_CORE_READ(regs, sp);
	cur->fp = BPF_CORE_READ(regs, bp);
#else
	const __u64 mode32 = 0x10;

	if (BPF_CORE_READ(regs, pstate) & mode32)
		return false;
	cur->pc = BPF_CORE_READ(regs, pc);
	cur->sp = BPF_CORE_READ(regs, sp);
	cur->fp = BPF_CORE_READ(regs, regs[29]);
	cur->lr = BPF_CORE_READ(regs, regs[30]) & unwind_address_mask;
#endif
	cur->how = 0;
	cur->exact = true;
	cur->searched = false;
	cur->search_frames = 0;
	return true;
}

enum unwind_walk {
	WALK_BY_KERNEL,
	WALK_NONE,
	WALK_BY_TABLES
};

/*
 * unwind_begin prepares the walk of the current task's user stack, and returns how it can be done:
 * stacks of 32-bit programs are unwound by the kernel. A thread that exits has no address space any
 * more; during an exec, the registers do not point into the new one yet.
 */
static __always_inline enum unwind_walk unwind_begin(__u32 space)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);

	if (!unwind_tables || !cur)
		return WALK_BY_KERNEL;
	if (!space)
		return WALK_NONE;
	cur->mappings.now_ns = bpf_ktime_get_ns();
	cur->mappings.count = 0;
	cur->mappings.unknown = 0;
	cur->mappings.anonymous = 0;
	unwind_returns(cur);
	if (!unwind_start(cur))
		return WALK_BY_KERNEL;
	return unwind_find(unwind_code(cur)) ? WALK_BY_TABLES : WALK_NONE;
}

#endif
