// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"

/* The fetched data is part of the key, of which there are three copies on the stack. */
#define FETCH_DATA_MAX 144
#include "fetch.bpf.h"
#include "frame.bpf.h"
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

struct call_key {
	__u64 frame; /* distinguishes nested calls */
	__u32 tid;
	__u32 target;
};

struct call {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u64 caller; /* return address, of a user function */
	struct entry entry;
};

/* Entries of calls that do not return remain until the map is full: then the oldest are evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct call_key);
	__type(value, struct call);
} calls SEC(".maps");

/* The body of fetch() reads what follows the data at FETCH_DATA_MAX. */
struct call_hit {
	struct table_key key;
	__u64 latency_ns;
	struct entry entry;
};

static __always_inline int begin(void *ctx, __u64 frame, __u64 caller, bool user)
{
	struct call_key key = { .frame = frame };
	struct call call = { .caller = caller };

	if (!task_current_wanted())
		return 0;
	key.tid = bpf_get_current_pid_tgid();
	key.target = target_id(ctx);
	fetch_entry(ctx, &call.entry);
	call.ns = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&calls, &key, &call, BPF_NOEXIST)) {
		counter_add(no_return);
		return 0;
	}
	/* An entry with the same frame is a call that was not observed to return. */
	if (bpf_map_update_elem(&calls, &key, &call, BPF_EXIST))
		lost_add(map_full);
	else if (user)
		counter_add(no_return);
	else
		lost_add(unobserved);
	return 0;
}

static __always_inline int end(void *ctx, __u64 frame, __u64 form)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct call_key key = { .frame = frame };
	struct call_hit hit = {};
	struct call *call;

	if (!task_current_wanted())
		return 0;
	key.tid = bpf_get_current_pid_tgid();
	key.target = target_id(ctx);
	call = bpf_map_lookup_elem(&calls, &key);
	if (!call) {
		if (form != RETURN_AT_SHARED)
			counter_add(no_begin);
		return 0;
	}
	if (!return_matches(ctx, form, call->caller))
		return 0;
	hit.latency_ns = now_ns - call->ns;
	hit.entry = call->entry;
	bpf_map_delete_elem(&calls, &key);
	counter_add_n(no_return, -1);
	if (!fetch_wanted(ctx, hit.key.data))
		return 0;
	hit.key.target = key.target;
	if (dist_hist)
		add_to_hist(&hit.key);
	else
		add_to_table(&hit.key);
	return 0;
}

struct fprobe_hlist___new {
	int dummy;
};

/* Exists in no kernel: a program that reads it does not load. */
struct pt_regs___none {
	long none;
} __attribute__((preserve_access_index));

/*
 * Returns of fprobe are based on fgraph from 6.14 on (4346ba160409), whose trampoline does not
 * preserve the caller's stack pointer. The program then does not load, and kprobes are used.
 */
static __always_inline __u64 frame_at_multi_end(struct pt_regs *regs)
{
	if (bpf_core_type_exists(struct fprobe_hlist___new))
		return BPF_CORE_READ((struct pt_regs___none *)regs, none);
	return PT_REGS_SP(regs);
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
