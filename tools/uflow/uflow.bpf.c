// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "language.bpf.h"
#include "methods.bpf.h"
#include "task.bpf.h"

#define CLASS_LEN 96
#define METHOD_LEN 80

/* Only methods, and methods of classes, whose names start with these. */
const volatile char targ_class[CLASS_LEN] = {};
const volatile __u32 targ_class_len = 0;
const volatile char targ_method[METHOD_LEN] = {};
const volatile __u32 targ_method_len = 0;

struct event {
	struct task_info task;
	__u64 delta_ns; /* of a return, 0 if the entry was not observed */
	__u32 cpu;
	__u32 language;
	__u32 depth; /* number of calls that the method is nested in */
	__u8 is_return;
	__u8 unseen; /* the entry of this return was not observed */
	__u8 pad[2];
	char class[CLASS_LEN];
	char method[METHOD_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

struct scratch {
	struct event event;
	char text[LANGUAGE_TEXT_MAX];
};

#include "scratch.bpf.h"

static __always_inline bool has_prefix(const char *name, const volatile char *prefix, __u32 len, __u32 max)
{
	for (__u32 i = 0; i < max && i < len; i++)
		if (name[i] != prefix[i])
			return false;
	return true;
}

/* read_method returns memory with the names of the method, or NULL if it is not wanted. */
static __always_inline struct scratch *read_method(void *ctx, enum language language, __u64 class, __u64 method)
{
	struct scratch *s = scratch_begin();
	struct event *e;

	if (!s)
		return NULL;
	e = &s->event;
	e->language = language;
	language_name_start(ctx, language, class, e->class, CLASS_LEN);
	language_name_start(ctx, language, method, e->method, METHOD_LEN);
	if (has_prefix(e->class, targ_class, targ_class_len, CLASS_LEN) &&
	    has_prefix(e->method, targ_method, targ_method_len, METHOD_LEN))
		return s;
	scratch_end();
	return NULL;
}

static __always_inline __u64 method_hash(const struct event *e)
{
	return language_hash(language_hash(e->language, e->class, CLASS_LEN), e->method, METHOD_LEN);
}

static __always_inline void send(void *ctx, struct event *e)
{
	task_info_current(&e->task);
	e->cpu = bpf_get_smp_processor_id();
	event_send(ctx, e, sizeof(*e), e->task.time_ns);
}

static __noinline int method_entry(struct pt_regs *ctx, enum language language, __u64 class, __u64 method)
{
	struct scratch *s;

	if (!task_current_wanted())
		return 0;
	s = read_method(ctx, language, class, method);
	if (!s)
		return 0;
	s->event.depth = method_begin(method_hash(&s->event));
	send(ctx, &s->event);
	scratch_end();
	return 0;
}

static __noinline int method_return(struct pt_regs *ctx, enum language language, __u64 class, __u64 method)
{
	__u64 start_ns = 0;
	struct scratch *s;

	if (!task_current_wanted())
		return 0;
	s = read_method(ctx, language, class, method);
	if (!s)
		return 0;
	s->event.is_return = true;
	if (!method_end(method_hash(&s->event), &start_ns, &s->event.depth))
		s->event.unseen = true;
	else if (start_ns)
		s->event.delta_ns = bpf_ktime_get_ns() - start_ns;
	send(ctx, &s->event);
	scratch_end();
	return 0;
}

METHOD_PROBES(method_entry, method_return)

ENDED_PROGRAMS(methods_forget())

char LICENSE[] SEC("license") = "Dual BSD/GPL";
