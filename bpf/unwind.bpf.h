/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWIND_BPF_H
#define __UNWIND_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"
#include "unwindsearch.bpf.h"
#include "unwindstep.bpf.h"
#include "unwindtable.bpf.h"

/*
 * Walks the stack of the current task in user mode by unwind tables (unwindtable.bpf.h), from the
 * registers that it had there. Where there is no table a step is made by the frame pointer, as the
 * kernel makes all steps. The walk ends at an address that no executable mapping holds.
 */

/* unwind_returns finds what uretprobes have put in the place of return addresses, and those. */
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
 * unwind_original puts the return address in the place of the trampoline. Instances are
 * ordered as frames are; those below this one have returned, or are the same call's.
 */
static __always_inline void unwind_original(struct unwind_cursor *cur)
{
	struct return_instance *instance = (void *)cur->returns;
#if defined(bpf_target_x86)
	__u64 place = cur->sp - 8;
#else
	__u64 place = cur->sp;
#endif

	for (int i = 0; i < MAX_RETURN_INSTANCES && instance; i++) {
		if (BPF_CORE_READ(instance, stack) >= place) {
			cur->pc = BPF_CORE_READ(instance, orig_ret_vaddr);
			break;
		}
		instance = BPF_CORE_READ(instance, next);
	}
	cur->returns = instance ? (__u64)BPF_CORE_READ(instance, next) : 0;
}

/* The result of a step. */
enum unwind_next {
	NEXT_UNKNOWN, /* the caller cannot be found */
	NEXT_FRAME,
	NEXT_NONE /* this is the outermost frame */
};

/* unwind_step goes to the caller, and returns an unwind_next. A global function, as stack_hash is. */
__noinline int unwind_step(void)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);
	const struct unwind_place *place;
	bool moved = false;
	__u64 rule;

	if (!cur)
		return NEXT_UNKNOWN;
	rule = unwind_rule(cur);
	switch (rule & 0x7f) {
	case BASE_END:
		return NEXT_NONE;
	case BASE_NONE:
		break;
	case BASE_SIGNAL:
		moved = unwind_by_signal(cur);
		break;
	default:
		moved = unwind_by_rule(cur, rule);
	}
	if (!moved && !unwind_by_code(cur) && !(rule == 0 && unwind_search(cur)) && !unwind_by_frame_pointer(cur))
		return cur->fp ? NEXT_UNKNOWN : NEXT_NONE; /* the ABIs clear it in the outermost frame */
	cur->pc &= unwind_address_mask;
	if (cur->returns && cur->pc == cur->trampoline)
		unwind_original(cur);
	if (!cur->pc)
		return NEXT_NONE;
	if (!unwind_locate())
		return NEXT_UNKNOWN;
	if (cur->how != HOW_FRAME_POINTER && !cur->searched)
		return NEXT_FRAME;
	place = unwind_place_at(&cur->places, cur->places.at);
	if (place->mapping.file.kind == MAPPING_FILE && !unwind_follows_call(cur))
		return NEXT_UNKNOWN;
	return NEXT_FRAME;
}

/* The registers of the current task when it entered the kernel. */
static __always_inline struct pt_regs *unwind_registers(void)
{
	/* From 5.15 on (dd6e10fbd9fb); before, they are at the very end of the stack. */
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	return BPF_CORE_READ(task_current(), stack) + unwind_thread_size - bpf_core_type_size(struct pt_regs);
}

/* unwind_start reads them, and is false for 32-bit programs. */
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
	return true;
}

enum unwind_walk {
	WALK_BY_KERNEL,
	WALK_NOWHERE,
	WALK_BY_TABLES
};

/*
 * unwind_begin prepares the walk through the current task's stack, and tells who can do it: 32-bit
 * programs need the kernel's own walk. A thread that ends has no address space any more, and in the
 * midst of an exec there is a new one where the registers do not lead anywhere yet.
 */
static __always_inline enum unwind_walk unwind_begin(__u32 space)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);

	if (!unwind_tables || !cur)
		return WALK_BY_KERNEL;
	if (!space)
		return WALK_NOWHERE;
	cur->places.now_ns = bpf_ktime_get_ns();
	cur->places.count = 0;
	cur->places.unknown = 0;
	unwind_returns(cur);
	if (!unwind_start(cur))
		return WALK_BY_KERNEL;
	return unwind_locate() ? WALK_BY_TABLES : WALK_NOWHERE;
}

#endif
