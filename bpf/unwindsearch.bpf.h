/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWINDSEARCH_BPF_H
#define __UNWINDSEARCH_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "loop.bpf.h"
#include "task.bpf.h"
#include "unwindstep.bpf.h"

/*
 * Hand-written assembly often has no unwind information. Its caller is found by searching the stack
 * upwards from the stack pointer for a return address, in files that have an unwind table but no
 * rule for this code. A word is accepted if it passes all of these checks:
 *
 * - It points to the instruction after a call, in a file with an unwind table, in code that has a
 *   rule.
 * - If the call is direct, it calls code without a rule, such as this, or a PLT entry.
 * - With its rule, the frame above has a return address after a call in a file. If that call is
 *   direct, it calls code that has a rule.
 *
 * The targets of calls exclude return addresses that compiled functions have left on the stack.
 * Assembly can use the frame pointer for anything, so the return addresses of all frames above are
 * checked (unwind_step()). If the rule of the frame above needs the frame pointer, it is searched
 * among the registers that the function has pushed.
 *
 * On arm64 a return address does not show where the frame of its function begins, so there is no
 * search.
 */
#define UNWIND_SEARCH_WORDS 640 /* frames are large: 4.3 KB in the trellis quantization of x264 */
/* A lookup of a mapping takes up to 1 us. */
#define UNWIND_SEARCH_LOOKUPS 24
/* The largest frame that is accepted above, in bytes. */
#define UNWIND_SEARCH_FRAME (1 << 20)
/* More registers than a function pushes below its return address. */
#define UNWIND_SEARCH_PUSHED 8
/* How far below the top of the address space libraries are mapped. */
#define UNWIND_SEARCH_MAPPED (1ULL << 40)

/* unwind_search_rule returns the rule of an address in a file, 0 if there is none. */
__noinline __u64 unwind_search_rule(__u64 address)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);

	if (!cur || !unwind_find(address))
		return 0;
	if (unwind_mapping_at(&cur->mappings, cur->mappings.at)->mapping.file.kind != MAPPING_FILE)
		return 0;
	return unwind_rule(cur, address);
}

static __always_inline bool unwind_has_frame(__u64 rule)
{
	return (rule & 0x7f) >= BASE_SP && (rule & 0x7f) <= BASE_AT_FP;
}

/*
 * unwind_plt_target returns the function that a PLT entry jumps to, 0 if the code is something else:
 * [endbr64] [bnd] jmp *distance(%rip).
 */
static __always_inline __u64 unwind_plt_target(__u64 entry)
{
	const __u32 endbr64 = 0xfa1e0ff3;
	const __u8 bnd = 0xf2;
	__u64 target = 0;
	__s32 distance;
	__u32 first;
	__u8 code[2];

	if (!unwind_read(&first, sizeof(first), entry))
		return 0;
	if (first == endbr64)
		entry += sizeof(first);
	if (!unwind_read(code, sizeof(code), entry))
		return 0;
	if (code[0] == bnd)
		entry++;
	if (!unwind_read(code, sizeof(code), entry) || code[0] != 0xff || code[1] != 0x25)
		return 0;
	entry += sizeof(code);
	if (!unwind_read(&distance, sizeof(distance), entry))
		return 0;
	entry += sizeof(distance) + distance;
	return unwind_read(&target, sizeof(target), entry) ? target : 0;
}

/*
 * unwind_search_call checks that pc is after a call and, if that is direct, whether the called code
 * has a rule. A call by the PLT is a direct one of the function that its entry jumps to.
 */
__noinline int unwind_search_call(__u64 pc, __u32 has_rule)
{
	const __u8 call_relative = 0xe8;
	struct {
		__u8 opcode;
		__s32 distance;
	} __attribute__((packed)) call;
	__u64 rule, target;

	/* Refuse pages that are not resident, which unwind_address_follows_call() accepts. */
	if (!unwind_read(&call, sizeof(call), pc - sizeof(call)) || !unwind_address_follows_call(pc))
		return 0;
	if (call.opcode != call_relative)
		return 1;
	target = pc + call.distance;
	rule = unwind_search_rule(target);
	if ((rule & 0x7f) == BASE_PLT) {
		target = unwind_plt_target(target);
		if (!target)
			return 0;
		rule = unwind_search_rule(target);
	}
	return !!rule == has_rule;
}

/*
 * unwind_search_maybe reports whether the word can be an address of code. Most are numbers or data.
 */
static __always_inline bool unwind_search_maybe(const struct unwind_cursor *cur, __u64 word)
{
	return word - cur->search_code < cur->search_code_size ||
	       (cur->search_mapped > word && cur->search_mapped - word < UNWIND_SEARCH_MAPPED);
}

/*
 * unwind_search_above checks the frame above. If its rule needs the frame pointer, cur->fp is a
 * candidate.
 */
static __always_inline bool unwind_search_above(const struct unwind_cursor *cur, __u64 rule)
{
	__u64 sp = unwind_caller_sp(cur, rule), pc = 0;

	if (sp <= cur->sp || sp - cur->sp > UNWIND_SEARCH_FRAME || !unwind_return_address(cur, rule, sp, &pc))
		return false;
	return unwind_search_maybe(cur, pc) && unwind_search_rule(pc - 1) && unwind_search_call(pc, true);
}

struct unwind_above_search {
	struct unwind_cursor *cur;
	__u64 rule;
	bool found;
};

/* unwind_search_pushed checks the frame above with the current frame pointer (0), or with a pushed word. */
static __always_inline bool unwind_search_pushed(void *state, __u32 i)
{
	struct unwind_above_search *s = state;
	__u64 *fp = &s->cur->fp;

	if (i && !unwind_read(fp, sizeof(*fp), s->cur->sp - (i + 1) * sizeof(*fp)))
		return false;
	s->found = unwind_search_above(s->cur, s->rule);
	return !s->found && (s->rule & 0x7f) != BASE_SP;
}

/* unwind_search_word goes to the caller if the word at the address is its return address. */
__noinline int unwind_search_word(__u64 address)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);
	struct unwind_above_search s = { .cur = cur };
	__u64 pc, fp;

	if (!cur || !cur->search_left || !unwind_read(&pc, sizeof(pc), address))
		return 0;
	if (!unwind_search_maybe(cur, pc))
		return 0;
	cur->search_left--;
	s.rule = unwind_search_rule(pc - 1);
	if (!unwind_has_frame(s.rule) || !unwind_search_call(pc, false))
		return 0;
	cur->pc = pc;
	cur->sp = address + sizeof(pc);
	cur->exact = false;
	fp = cur->fp;
	loop_while(UNWIND_SEARCH_PUSHED + 1, unwind_search_pushed, &s);
	if (s.found) {
		cur->how = HOW_SEARCH;
		cur->searched = true;
		return 1;
	}
	cur->pc = cur->search_pc;
	cur->sp = cur->search_sp;
	cur->fp = fp;
	return 0;
}

struct unwind_searching {
	__u64 sp;
	bool found;
};

/* unwind_search_next returns false if the word i at the stack pointer is the return address. */
static __always_inline bool unwind_search_next(void *state, __u32 i)
{
	struct unwind_searching *s = state;

	s->found = unwind_search_word(s->sp + i * sizeof(s->sp));
	return !s->found;
}

/* unwind_search returns false if it finds no caller. */
static __always_inline bool unwind_search(struct unwind_cursor *cur)
{
	const struct unwind_mapping *m;
	const struct mm_struct *mm;
	struct unwind_searching s = {};
	bool exact;

#if !defined(bpf_target_x86)
	return false;
#endif
	if (!cur->sp || !cur->mappings.count)
		return false;
	m = unwind_mapping_at(&cur->mappings, cur->mappings.at);
	if (m->mapping.file.kind != MAPPING_FILE || !m->levels)
		return false;
	s.sp = cur->sp;
	exact = cur->exact;
	cur->search_pc = cur->pc;
	cur->search_sp = s.sp;
	cur->search_left = UNWIND_SEARCH_LOOKUPS;
	mm = BPF_CORE_READ(task_current(), mm);
	cur->search_code = BPF_CORE_READ(mm, start_code);
	cur->search_code_size = BPF_CORE_READ(mm, end_code) - cur->search_code;
	cur->search_mapped = BPF_CORE_READ(mm, mmap_base);
	loop_while(UNWIND_SEARCH_WORDS, unwind_search_next, &s);
	if (!s.found)
		cur->exact = exact;
	return s.found;
}

#endif
