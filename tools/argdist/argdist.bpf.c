// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"

/* The fetched data is part of the key, of which there are three copies on the stack. */
#define FETCH_DATA_MAX 144
#include "fetch.bpf.h"
#include "mark.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

struct counters {
	__u64 no_value; /* hits whose value could not be read; they are in no histogram */
	__u64 negative; /* hits with a negative value; they are in no histogram */
	__u64 no_begin; /* returns of calls whose entry was not observed, or was evicted; with $latency or $entry */
	/* calls left by an exception or longjmp, whose task ended, or still running at the end; likewise */
	__u64 no_return;
};

#include "counters.bpf.h"

/* Count into a histogram of one value, instead of counting values. */
const volatile bool dist_hist = false;

struct table_key {
	__u32 target;
	__u32 pad;
	char data[FETCH_DATA_MAX];
};

struct table_value {
	__u64 count;
};

struct hist_key {
	__u32 target;
};

#include "hist.bpf.h"
#include "table.bpf.h"

/* Layout of a number written by fetch(). */
struct number {
	__u64 missing;
	__s64 value;
};

static __always_inline void add_to_hist(const struct table_key *key)
{
	struct hist_key of = { .target = key->target };
	struct number *n = (void *)key->data;

	if (n->missing)
		counter_add(no_value);
	else if (n->value < 0)
		counter_add(negative);
	else
		hist_record(&of, n->value);
}

static __always_inline void add_to_table(const struct table_key *key)
{
	struct table_value *value = table_find(key);

	if (value)
		table_add(value, count, 1);
}

static __always_inline int hit(void *ctx)
{
	struct table_key key = {};

	if (!task_current_wanted() || !fetch_wanted(ctx, key.data))
		return 0;
	key.target = target_id(ctx);
	if (dist_hist)
		add_to_hist(&key);
	else
		add_to_table(&key);
	return 0;
}

TARGET_PROGRAMS(hit(ctx))

/* Arguments at the entry of a call, and its duration: $entry(NAME) and $latency. */
#define ENTRY_MAX 6

struct entry {
	__u64 missing; /* bitmap */
	__u64 word[ENTRY_MAX];
};

/*
 * fetch_entry() writes the arguments at the entry of a call. Like that of fetch(), its body is
 * generated.
 */
static __noinline __u64 fetch_entry(void *ctx, void *data)
{
	__u64 wanted;

	asm volatile("%0 = 1" : "=r"(wanted) : "r"(ctx), "r"(data) : "memory");
	return wanted;
}

struct call {
	__u64 ns; /* CLOCK_MONOTONIC */
	struct entry entry;
	__u64 caller; /* return address, of a user function */
};

#include "funccall.bpf.h"

/*
 * The body of fetch() reads what follows the data at FETCH_DATA_MAX: the latency, which replaces the
 * time, and the arguments. A copy of the call would not fit on the stack.
 */
struct call_hit {
	struct table_key key;
	struct call call;
};

static __always_inline int begin(void *ctx, __u64 frame, __u64 caller, bool user)
{
	struct call call = { .caller = caller };

	if (!observing || !task_current_wanted())
		return 0;
	fetch_entry(ctx, &call.entry);
	func_call_begin(target_id(ctx), frame, &call, user);
	return 0;
}

static __always_inline int end(void *ctx, __u64 frame, __u64 form)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct call_hit hit = {};
	__u32 target;

	if (!task_current_wanted())
		return 0;
	target = target_id(ctx);
	if (!func_call_end(ctx, target, frame, form, &hit.call))
		return 0;
	hit.call.ns = now_ns - hit.call.ns;
	if (!fetch_wanted(ctx, hit.key.data))
		return 0;
	hit.key.target = target;
	if (dist_hist)
		add_to_hist(&hit.key);
	else
		add_to_table(&hit.key);
	return 0;
}

static __always_inline int begin_user(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx), caller_address(ctx), true);
}

static __always_inline int end_user(struct pt_regs *ctx)
{
	__u64 form = return_form();

	return end(ctx, frame_at_return(ctx, form), form);
}

SEC("kprobe.multi")
int kernel_call__multi__begin(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx), 0, false);
}

SEC("kretprobe.multi")
int kernel_call__multi__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_multi_end(ctx), RETURN_AFTER);
}

SEC("kprobe")
int kernel_call__kprobe__begin(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx), 0, false);
}

SEC("kretprobe")
int kernel_call__kprobe__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_end(ctx), RETURN_AFTER);
}

SEC("uprobe.multi")
int user_call__multi__begin(struct pt_regs *ctx)
{
	return begin_user(ctx);
}

SEC("uretprobe.multi")
int user_call__multi__end(struct pt_regs *ctx)
{
	return end_user(ctx);
}

SEC("uprobe")
int user_call__uprobe__begin(struct pt_regs *ctx)
{
	return begin_user(ctx);
}

SEC("uretprobe")
int user_call__uprobe__end(struct pt_regs *ctx)
{
	return end_user(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
