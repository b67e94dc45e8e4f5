/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __UNWIND_BPF_H
#define __UNWIND_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/*
 * Stacks of functions that keep no frame pointers. User space makes tables of what
 * compilers say of each instruction: where the frame begins, and what is saved in it. Here
 * they are followed, from the registers that the thread had in user mode. Where no table
 * has the instruction a step is made by the frame pointer, as the kernel makes them all.
 *
 * What changes in a loop is kept in memory, and read again: the verifier then knows as much
 * of it in the last round as in the first, and looks at one.
 */

/* User space has tables, or will. */
const volatile bool unwind_tables = false;
/* The size of a task's stack in the kernel. */
const volatile __u64 unwind_thread_size = 16384;
/* The bits of an address in user space; above may be a signature of the pointer. */
const volatile __u64 unwind_address_mask = (1ULL << 56) - 1;

/* MAX_URETPROBE_DEPTH of the kernel. */
#define MAX_RETURN_INSTANCES 64

/* As internal/unwind has them. */
#define UNWIND_MAPPINGS 65536
#define UNWIND_BLOCKS 20480
#define UNWIND_BLOCK_ROWS 128
#define UNWIND_RULES 16384
#define UNWIND_PROCESSES 8192

/* How a frame was found, in the highest bits of its address. */
enum unwind_how { HOW_FRAME_POINTER, HOW_TABLE, HOW_GO, HOW_SIGNAL, HOW_CODE };
#define UNWIND_HOW_SHIFT 60
#define UNWIND_ADDRESS ((1ULL << UNWIND_HOW_SHIFT) - 1)

/* What a rule counts the caller's stack pointer from. */
enum unwind_base { BASE_NONE, BASE_SP, BASE_FP, BASE_AT_FP, BASE_PLT, BASE_SIGNAL, BASE_END };
#define UNWIND_RULE_GO 0x80

/* The file mappings of a process that have tables, by address. */
struct unwind_process {
	__u32 space; /* as stack_head has it; 0 until it is seen */
	__u32 first, count; /* in unwind_mappings */
	__u32 pad;
};

struct unwind_mapping {
	__u64 start, end;
	__u64 bias; /* between addresses of the process and of the file */
	__u32 first, count; /* in unwind_blocks */
};

/* Rows of a table: a rule is for the addresses from pc to the next row's. */
struct unwind_block {
	__u32 pc[UNWIND_BLOCK_ROWS];
	__u16 rule[UNWIND_BLOCK_ROWS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNWIND_PROCESSES);
	__type(key, __u32);
	__type(value, struct unwind_process);
} unwind_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_MAPPINGS);
	__type(key, __u32);
	__type(value, struct unwind_mapping);
} unwind_mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_BLOCKS);
	__type(key, __u32);
	__type(value, struct unwind_block);
} unwind_blocks SEC(".maps");

/*
 * From the lowest bits on: the base, 8 bits, 8 unused; then three distances in units of 8
 * bytes, 16 bits each: of the caller's stack pointer from the base, of the saved frame
 * pointer from that, and of the return address. 0 is what was not saved.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_RULES);
	__type(key, __u32);
	__type(value, __u64);
} unwind_rules SEC(".maps");

struct unwind_cursor {
	__u64 pc, sp, fp;
	__u64 lr; /* arm64, of the innermost frame and of one that a signal has interrupted */
	__u64 trampoline; /* what functions return to instead of their callers, where uretprobes are */
	__u64 returns; /* struct return_instance: the callers; 0 where there are none */
	__u32 first, count; /* of the process */
	volatile __u32 low, high; /* of a search */
	bool exact; /* pc is where the thread was interrupted, not a return address */
	__u8 how; /* pc was found */
	__u8 pad[6];
};

/* Guarded by busy of the stack's room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwind_cursor);
} unwind_cursors SEC(".maps");

static __always_inline __u32 unwind_middle(const struct unwind_cursor *cur)
{
	return ((__u64)cur->low + cur->high) / 2;
}

/* The mapping that holds the address; there are up to 2^16 of a process. */
static __always_inline struct unwind_mapping *unwind_mapping_of(struct unwind_cursor *cur, __u64 pc)
{
	struct unwind_mapping *mapping;
	__u32 at;

	cur->low = cur->first;
	cur->high = cur->first + cur->count;
	for (int i = 0; i < 17; i++) {
		if (cur->low >= cur->high)
			break;
		at = unwind_middle(cur);
		mapping = bpf_map_lookup_elem(&unwind_mappings, &at);
		if (mapping && mapping->start <= pc)
			cur->low = at + 1;
		else
			cur->high = at;
	}
	at = cur->low - 1;
	if (at < cur->first)
		return NULL;
	mapping = bpf_map_lookup_elem(&unwind_mappings, &at);
	return mapping && pc >= mapping->start && pc < mapping->end ? mapping : NULL;
}

/* The block of the table that holds the address; there are up to 2^15. */
static __always_inline struct unwind_block *unwind_block_of(struct unwind_cursor *cur,
							    const struct unwind_mapping *mapping, __u32 pc)
{
	struct unwind_block *block;
	__u32 at;

	cur->low = mapping->first;
	cur->high = mapping->first + mapping->count;
	for (int i = 0; i < 16; i++) {
		if (cur->low >= cur->high)
			break;
		at = unwind_middle(cur);
		block = bpf_map_lookup_elem(&unwind_blocks, &at);
		if (block && block->pc[0] <= pc)
			cur->low = at + 1;
		else
			cur->high = at;
	}
	at = cur->low - 1;
	if (at < mapping->first)
		return NULL;
	return bpf_map_lookup_elem(&unwind_blocks, &at);
}

/* The number of the rule in the block, whose first row is not above the address. */
static __always_inline __u32 unwind_row_of(struct unwind_cursor *cur, const struct unwind_block *block,
					   __u32 pc)
{
	cur->low = 1;
	cur->high = UNWIND_BLOCK_ROWS;
	for (int i = 0; i < 8; i++) {
		__u32 at;

		if (cur->low >= cur->high)
			break;
		at = unwind_middle(cur);
		if (block->pc[at % UNWIND_BLOCK_ROWS] <= pc)
			cur->low = at + 1;
		else
			cur->high = at;
	}
	return block->rule[(cur->low - 1) % UNWIND_BLOCK_ROWS];
}

/* unwind_rule is the rule for where the thread is, 0 where there is none. */
static __always_inline __u64 unwind_rule(struct unwind_cursor *cur)
{
	__u64 pc = cur->pc - !cur->exact, *rule;
	struct unwind_mapping *mapping = unwind_mapping_of(cur, pc);
	struct unwind_block *block;
	__u32 at;

	if (!mapping)
		return 0;
	block = unwind_block_of(cur, mapping, pc - mapping->bias);
	if (!block)
		return 0;
	at = unwind_row_of(cur, block, pc - mapping->bias);
	rule = bpf_map_lookup_elem(&unwind_rules, &at);
	return rule ? *rule : 0;
}

static __always_inline bool unwind_read(void *dst, __u32 size, __u64 address)
{
	return !bpf_probe_read_user(dst, size, (void *)address);
}

/* On both architectures the frame pointer leads to the caller's, which the return address follows. */
static __always_inline bool unwind_by_frame_pointer(struct unwind_cursor *cur)
{
	__u64 frame[2];

	if (!cur->fp || !unwind_read(frame, sizeof(frame), cur->fp) || frame[0] == cur->fp)
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
 * Where there is no table, the code after a call may tell that there is only room to leave on
 * the stack: in what CPython 3.12 and 3.13 make for perf to see their functions by, on x86.
 */
static __always_inline bool unwind_by_code(struct unwind_cursor *cur)
{
#if defined(bpf_target_x86)
	struct {
		__u8 add_to_sp[3];
		__s8 room;
		__u8 ret;
	} code;
	__u64 sp, pc;

	if (cur->exact || !cur->sp || !unwind_read(&code, sizeof(code), cur->pc))
		return false;
	if (code.add_to_sp[0] != 0x48 || code.add_to_sp[1] != 0x83 || code.add_to_sp[2] != 0xc4 ||
	    code.room <= 0 || code.ret != 0xc3)
		return false;
	sp = cur->sp + code.room;
	if (!unwind_read(&pc, sizeof(pc), sp))
		return false;
	cur->sp = sp + sizeof(pc);
	cur->pc = pc;
	cur->how = HOW_CODE;
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

/* unwind_step goes to the caller, and returns 0 where there is none. A global function, as stack_hash is. */
__noinline int unwind_step(void)
{
	__u32 zero = 0;
	struct unwind_cursor *cur = bpf_map_lookup_elem(&unwind_cursors, &zero);
	bool moved = false;
	__u64 rule;

	if (!cur)
		return 0;
	rule = unwind_rule(cur);
	switch (rule & 0x7f) {
	case BASE_END:
		return 0;
	case BASE_NONE:
		break;
	case BASE_SIGNAL:
		moved = unwind_by_signal(cur);
		break;
	default:
		moved = unwind_by_rule(cur, rule);
	}
	if (!moved && !unwind_by_code(cur) && !unwind_by_frame_pointer(cur))
		return 0;
	cur->pc &= unwind_address_mask;
	if (cur->returns && cur->pc == cur->trampoline)
		unwind_original(cur);
	return cur->pc != 0;
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
	return cur->pc != 0;
}

/*
 * unwind_begin prepares the walk through the current task's stack. It is false where the
 * process, or its program since an exec, has no tables; the kernel's own walk has to do then.
 */
static __always_inline bool unwind_begin(__u32 pid, __u32 space)
{
	__u32 zero = 0;
	struct unwind_cursor *cur;
	struct unwind_process *process;

	if (!unwind_tables || !space) /* a thread that ends has no address space */
		return false;
	process = bpf_map_lookup_elem(&unwind_processes, &pid);
	cur = bpf_map_lookup_elem(&unwind_cursors, &zero);
	if (!process || !cur)
		return false;
	if (!process->space)
		process->space = space;
	if (process->space != space)
		return false;
	cur->first = process->first;
	cur->count = process->count;
	unwind_returns(cur);
	return unwind_start(cur);
}

#endif
