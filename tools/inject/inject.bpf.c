// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
/* Conditions only, no values. */
#define FETCH_DATA_MAX 64
#include "event.bpf.h"
#include "fetch.bpf.h"
#include "observing.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

#define LEVELS_MAX 8
#define SITES_MAX 64
#define TRAMPOLINES_MAX 4

/* The number of functions of the chain, and the position of each attach point: 0 is the outermost. */
const volatile __u32 targ_nr_levels = 0;
const volatile __u32 targ_levels[SITES_MAX] = {};
/* What return probes replace return addresses by. */
const volatile __u64 targ_trampolines[TRAMPOLINES_MAX] = {};

/*
 * What the function returns instead, and whether it really does. The helper for that is not available
 * on all kernels; without it, only programs with this constant can be loaded.
 */
const volatile __s64 targ_return = 0;
const volatile bool targ_dry_run = true;

/* The share of calls that fail, in 2^-32; 0 is all. */
const volatile __u32 targ_share = 0;
const volatile __u64 targ_count = 0;
const volatile __u32 targ_not_pid = 0;

/* The size of the stack of a task. */
const volatile __u64 targ_stack_bytes = 0;

struct event {
	struct task_info task;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/*
 * The calls of a thread that are in progress, from the outermost function of the chain on. A call is
 * removed when it returns. The kernel can miss a return, if too many calls wait for theirs, so a call
 * counts as in progress only if its return address is replaced: see in_progress().
 */
struct chain {
	__u64 sp[LEVELS_MAX]; /* stack pointer at the entry */
	__u32 nest[LEVELS_MAX]; /* this call, and further ones of the same function within it */
	__u32 met; /* number of functions that are in progress, with their conditions */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32); /* thread */
	__type(value, struct chain);
} chains SEC(".maps");

/* The number of calls that have failed. */
__u64 nr_failed;

/* An interrupt has another stack than the task. */
static __always_inline bool on_task_stack(struct pt_regs *ctx)
{
	return PT_REGS_SP(ctx) - (__u64)BPF_CORE_READ(task_current(), stack) <
	       targ_stack_bytes;
}

static __always_inline bool is_trampoline(__u64 address)
{
	for (int i = 0; i < TRAMPOLINES_MAX; i++) {
		__u64 trampoline = targ_trampolines[i];

		if (!trampoline)
			break;
#if defined(__TARGET_ARCH_arm64)
		/* Without the bits that sign the address. */
		if (!((address ^ trampoline) << 25))
			return true;
#else
		if (address == trampoline)
			return true;
#endif
	}
	return false;
}

#if defined(__TARGET_ARCH_arm64)
#define FRAMES_MAX 64

/*
 * return_address returns where the function goes on from which a call with this stack pointer was
 * made. It is in the last frame record below, or still in the register, if the function has ended with
 * a jump to the current one.
 */
static __always_inline __u64 return_address(struct pt_regs *ctx, __u64 sp)
{
	__u64 record[2], at = BPF_CORE_READ(ctx, regs[29]), address = BPF_CORE_READ(ctx, regs[30]);

	for (int i = 0; i < FRAMES_MAX && at < sp; i++) {
		if (bpf_probe_read_kernel(record, sizeof(record), (void *)at) || record[0] <= at)
			return 0;
		address = record[1];
		at = record[0];
	}
	return at < sp ? 0 : address;
}
#else
static __always_inline __u64 return_address(struct pt_regs *ctx, __u64 sp)
{
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), (void *)sp);
	return address;
}
#endif

/*
 * in_progress reports whether the call that began with this stack pointer has not returned. Deeper
 * calls have a lower stack pointer, or the same if the function has ended with a jump to them. A call
 * whose return will be observed has a trampoline as return address. If there is none, either it has
 * returned, and that was missed, or its return will be missed.
 */
static __always_inline bool in_progress(struct pt_regs *ctx, __u64 sp)
{
	if (sp < PT_REGS_SP(ctx))
		return false;
	if (is_trampoline(return_address(ctx, sp)))
		return true;
	lost_add(unobserved);
	return false;
}

/* chain_find returns the calls of the current thread, without those that are not in progress. */
static __noinline struct chain *chain_find(struct pt_regs *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct chain *c = bpf_map_lookup_elem(&chains, &tid);

	if (!c)
		return NULL;
	for (__u32 i = 0; i < LEVELS_MAX && i < c->met; i++) {
		if (!in_progress(ctx, c->sp[i])) {
			c->met = i;
			break;
		}
	}
	return c;
}

static __always_inline struct chain *chain_add(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct chain fresh = {};

	if (bpf_map_update_elem(&chains, &tid, &fresh, BPF_NOEXIST)) {
		lost_add(map_full);
		return NULL;
	}
	return bpf_map_lookup_elem(&chains, &tid);
}

static __always_inline bool caller_wanted(struct pt_regs *ctx)
{
	struct task_struct *task = task_current();

	if (!observing || (targ_not_pid && task_local_pid(task) == targ_not_pid))
		return false;
	return on_task_stack(ctx) && task_current_wanted();
}

static __noinline int enter(struct pt_regs *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid(), site = target_id(ctx), level;
	char data[FETCH_DATA_MAX] = {};
	bool is_wanted = caller_wanted(ctx);
	struct chain *c;

	if (site >= SITES_MAX)
		return 0;
	level = targ_levels[site];
	c = is_wanted ? chain_find(ctx) : bpf_map_lookup_elem(&chains, &tid);
	if (level >= LEVELS_MAX || level > (c ? c->met : 0))
		return 0;
	/* A call with the same stack pointer has returned. */
	if (c && level < c->met && (!is_wanted || c->sp[level] > PT_REGS_SP(ctx))) {
		c->nest[level]++;
		return 0;
	}
	if (c)
		c->met = level;
	if (!is_wanted || !fetch_wanted(ctx, data))
		return 0;
	if (!c)
		c = chain_add();
	if (!c)
		return 0;
	c->sp[level] = PT_REGS_SP(ctx);
	c->nest[level] = 1;
	c->met = level + 1;
	return 0;
}

static __noinline int leave(struct pt_regs *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid(), site = target_id(ctx), level;
	struct chain *c;

	if (site >= SITES_MAX)
		return 0;
	level = targ_levels[site];
	c = bpf_map_lookup_elem(&chains, &tid);
	if (!c || level >= LEVELS_MAX || level >= c->met || --c->nest[level])
		return 0;
	c->met = level;
	if (!level)
		bpf_map_delete_elem(&chains, &tid);
	return 0;
}

static __always_inline bool is_in_chain(struct pt_regs *ctx)
{
	struct chain *c;

	if (!targ_nr_levels)
		return true;
	c = chain_find(ctx);
	return c && c->met == targ_nr_levels;
}

/* should_fail reports whether the call fails, and sends its row. */
static __noinline int should_fail(struct pt_regs *ctx)
{
	char data[FETCH_DATA_MAX] = {};
	struct event e = {};

	if (!caller_wanted(ctx) || !is_in_chain(ctx) || !fetch_wanted(ctx, data))
		return 0;
	if (targ_share && bpf_get_prandom_u32() >= targ_share)
		return 0;
	if (targ_count && nr_failed >= targ_count)
		return 0;
	__sync_fetch_and_add(&nr_failed, 1);
	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 1;
}

SEC("kprobe")
int fail__kprobe(struct pt_regs *ctx)
{
	if (should_fail(ctx) && !targ_dry_run)
		bpf_override_return(ctx, targ_return);
	return 0;
}

SEC("kprobe.multi")
int kernel__multi(struct pt_regs *ctx)
{
	return enter(ctx);
}

SEC("kprobe")
int kernel__kprobe(struct pt_regs *ctx)
{
	return enter(ctx);
}

SEC("kretprobe.multi")
int kernel_return__multi(struct pt_regs *ctx)
{
	return leave(ctx);
}

SEC("kretprobe")
int kernel_return__kprobe(struct pt_regs *ctx)
{
	return leave(ctx);
}

static __always_inline int forget(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&chains, &tid);
	return 0;
}

/* A task can end within a function of the chain. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended__btf)
{
	return forget();
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(ended__raw)
{
	return forget();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
