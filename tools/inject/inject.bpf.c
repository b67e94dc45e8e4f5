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
/* More than the stack of a task, which is 16 KiB, or 64 KiB with pages of that size. */
#define STACK_SPAN (64 << 10)

/* The number of functions of the chain, and the position of each attach point: 0 is the outermost. */
const volatile __u32 targ_nr_levels = 0;
const volatile __u32 targ_levels[SITES_MAX] = {};

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

struct event {
	struct task_info task;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* The calls of a thread that are in progress, from the outermost function of the chain on. */
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

/*
 * chain_find returns the calls in progress of the current thread. A return that was not observed
 * leaves a call behind; the stack pointer shows that it has ended. An interrupt has another stack:
 * it does not belong to the calls.
 */
static __always_inline struct chain *chain_find(__u32 tid, __u64 sp)
{
	struct chain *c = bpf_map_lookup_elem(&chains, &tid);

	if (!c || !c->met)
		return c;
	if (sp - c->sp[0] + STACK_SPAN >= 2 * STACK_SPAN)
		return NULL;
	for (int i = 0; i < LEVELS_MAX; i++) {
		__u32 last = c->met - 1;

		if (last >= LEVELS_MAX || sp < c->sp[last])
			break;
		c->met = last;
	}
	return c;
}

static __always_inline bool caller_wanted(void)
{
	struct task_struct *task = task_current();

	if (!observing || (targ_not_pid && task_local_pid(task) == targ_not_pid))
		return false;
	return task_current_wanted();
}

static __noinline int enter(struct pt_regs *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid(), site = target_id(ctx), level, met;
	struct chain fresh = {}, *c;
	char data[FETCH_DATA_MAX] = {};
	__u64 sp = PT_REGS_SP(ctx);

	if (site >= SITES_MAX || !caller_wanted())
		return 0;
	level = targ_levels[site];
	c = chain_find(tid, sp);
	met = c ? c->met : 0;
	if (level >= LEVELS_MAX || level > met)
		return 0;
	if (level < met) {
		if (c)
			c->nest[level]++;
		return 0;
	}
	if (!fetch_wanted(ctx, data))
		return 0;
	if (!c) {
		if (bpf_map_update_elem(&chains, &tid, &fresh, BPF_NOEXIST)) {
			lost_add(map_full);
			return 0;
		}
		c = bpf_map_lookup_elem(&chains, &tid);
		if (!c)
			return 0;
	}
	c->sp[level] = sp;
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
	__u32 tid = bpf_get_current_pid_tgid();
	struct chain *c;

	if (!targ_nr_levels)
		return true;
	c = chain_find(tid, PT_REGS_SP(ctx));
	return c && c->met == targ_nr_levels;
}

/* should_fail reports whether the call fails, and sends its row. */
static __noinline int should_fail(struct pt_regs *ctx)
{
	char data[FETCH_DATA_MAX] = {};
	struct event e = {};

	if (!caller_wanted() || !is_in_chain(ctx) || !fetch_wanted(ctx, data))
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
