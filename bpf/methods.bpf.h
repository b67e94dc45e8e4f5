/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __METHODS_BPF_H
#define __METHODS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The struct counters of tools that include this header. */
struct counters {
	__u64 no_return; /* calls whose return was not observed: left by an exception, or running at the end */
	__u64 unseen_calls; /* returns of calls whose entry was not observed, such as calls in progress at the start */
};

#include "counters.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"

/*
 * The methods that a thread has called and that have not returned. Probes of runtimes have no frame
 * that would identify a call, so a return belongs to the innermost call of the same method. Calls
 * below it were left without a return, such as by an exception.
 */
struct method_key {
	__u32 tid;
	__u32 depth;
};

struct method_call {
	__u64 method; /* language_hash() of its name */
	__u64 start_ns; /* CLOCK_MONOTONIC */
};

/* The number of calls that one return can end. */
#define METHODS_LEFT_MAX 32
/* The number of calls of a thread that are removed when it ends. Others are replaced later. */
#define METHODS_ENDED_MAX 256

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct method_key);
	__type(value, struct method_call);
} methods SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, __u32); /* number of its calls */
} method_depths SEC(".maps");

static __always_inline __u32 *method_depth(__u32 tid)
{
	return bpf_map_lookup_elem(&method_depths, &tid);
}

/* method_begin notes a call, and returns the number of calls that it is nested in. */
static __always_inline __u32 method_begin(__u64 method)
{
	struct method_call call = { .method = method, .start_ns = bpf_ktime_get_ns() };
	struct method_key key = { .tid = bpf_get_current_pid_tgid() };
	__u32 *depth, none = 0;

	if (!observing)
		return 0;
	depth = method_depth(key.tid);
	if (!depth) {
		bpf_map_update_elem(&method_depths, &key.tid, &none, BPF_NOEXIST);
		depth = method_depth(key.tid);
	}
	if (!depth) {
		lost_add(map_full);
		return 0;
	}
	key.depth = *depth;
	*depth = key.depth + 1;
	if (bpf_map_update_elem(&methods, &key, &call, BPF_ANY))
		lost_add(map_full);
	else
		counter_add(no_return);
	return key.depth;
}

/* Returns the number of innermost calls that the return of the method ends, 0 if there is none. */
static __always_inline __u32 methods_to_end(__u64 method, __u32 tid, __u32 depth)
{
	struct method_key key = { .tid = tid };
	struct method_call *call;

	for (__u32 i = 1; i <= METHODS_LEFT_MAX && i <= depth; i++) {
		key.depth = depth - i;
		call = bpf_map_lookup_elem(&methods, &key);
		/* A call that was not noted because the map was full is lost already. */
		if (call ? call->method == method : i == 1)
			return i;
	}
	return 0;
}

/*
 * method_end removes the call that returns. It returns false for a call whose entry was not
 * observed. start_ns is 0 if it was lost.
 */
static __always_inline bool method_end(__u64 method, __u64 *start_ns, __u32 *nested)
{
	struct method_key key = { .tid = bpf_get_current_pid_tgid() };
	__u32 *depth = method_depth(key.tid), before, n;
	struct method_call *call;

	before = depth ? *depth : 0;
	n = methods_to_end(method, key.tid, before);
	if (!n) {
		counter_add(unseen_calls);
		return false;
	}
	key.depth = before - n;
	call = bpf_map_lookup_elem(&methods, &key);
	*start_ns = call ? call->start_ns : 0;
	if (call)
		counter_add_n(no_return, -1);
	for (__u32 i = 1; i <= METHODS_LEFT_MAX && i <= n; i++) {
		key.depth = before - i;
		bpf_map_delete_elem(&methods, &key);
	}
	*nested = before - n;
	if (depth)
		*depth = before - n;
	return true;
}

static __always_inline int methods_forget(void)
{
	struct method_key key = { .tid = bpf_get_current_pid_tgid() };
	__u32 *depth = method_depth(key.tid), n;

	if (!depth)
		return 0;
	n = *depth;
	/* Not key.depth: the verifier of 5.10 takes a loop variable in memory for an infinite loop. */
	for (__u32 i = 0; i < METHODS_ENDED_MAX && i < n; i++) {
		key.depth = i;
		bpf_map_delete_elem(&methods, &key);
	}
	bpf_map_delete_elem(&method_depths, &key.tid);
	return 0;
}

/* Programs for the end of a thread, which call methods_forget(). */
#define ENDED_PROGRAMS(call)               \
	SEC("tp_btf/sched_process_exit")   \
	int BPF_PROG(ended__btf)           \
	{                                  \
		return call;               \
	}                                  \
	SEC("raw_tp/sched_process_exit")   \
	int BPF_PROG(ended__raw)           \
	{                                  \
		return call;               \
	}                                  \
	SEC("tp/sched/sched_process_exit") \
	int ended__tp(void *ctx)           \
	{                                  \
		return call;               \
	}

/*
 * The probes of methods: on_entry(ctx, enum language, argument with the class or the file, argument
 * with the method). Ruby has its own probes for methods that are written in C.
 */
#define METHOD_PROBE(name, section, call)          \
	SEC("usdt/" section)                       \
	int name(struct pt_regs *ctx)              \
	{                                          \
		return call;                       \
	}

#define METHOD_PROBES(on_entry, on_return)                                                                         \
	METHOD_PROBE(java_entry__usdt, "java:hotspot:method__entry", on_entry(ctx, LANGUAGE_JAVA, 1, 3))           \
	METHOD_PROBE(java_return__usdt, "java:hotspot:method__return", on_return(ctx, LANGUAGE_JAVA, 1, 3))        \
	METHOD_PROBE(perl_entry__usdt, "perl:perl:sub__entry", on_entry(ctx, LANGUAGE_PERL, 3, 0))                 \
	METHOD_PROBE(perl_return__usdt, "perl:perl:sub__return", on_return(ctx, LANGUAGE_PERL, 3, 0))              \
	METHOD_PROBE(php_entry__usdt, "php:php:function__entry", on_entry(ctx, LANGUAGE_PHP, 3, 0))                \
	METHOD_PROBE(php_return__usdt, "php:php:function__return", on_return(ctx, LANGUAGE_PHP, 3, 0))             \
	METHOD_PROBE(python_entry__usdt, "python:python:function__entry", on_entry(ctx, LANGUAGE_PYTHON, 0, 1))    \
	METHOD_PROBE(python_return__usdt, "python:python:function__return", on_return(ctx, LANGUAGE_PYTHON, 0, 1)) \
	METHOD_PROBE(ruby_entry__usdt__method, "ruby:ruby:method__entry", on_entry(ctx, LANGUAGE_RUBY, 0, 1))      \
	METHOD_PROBE(ruby_entry__usdt__c, "ruby:ruby:cmethod__entry", on_entry(ctx, LANGUAGE_RUBY, 0, 1))          \
	METHOD_PROBE(ruby_return__usdt__method, "ruby:ruby:method__return", on_return(ctx, LANGUAGE_RUBY, 0, 1))   \
	METHOD_PROBE(ruby_return__usdt__c, "ruby:ruby:cmethod__return", on_return(ctx, LANGUAGE_RUBY, 0, 1))       \
	METHOD_PROBE(tcl_entry__usdt, "tcl:tcl:proc__entry", on_entry(ctx, LANGUAGE_TCL, NO_ARG, 0))               \
	METHOD_PROBE(tcl_return__usdt, "tcl:tcl:proc__return", on_return(ctx, LANGUAGE_TCL, NO_ARG, 0))

#endif
