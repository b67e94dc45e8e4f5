// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "language.bpf.h"
#include "task.bpf.h"

#define CLASS_LEN 96

/* What is created. The names are in user space, except those of objects. */
enum kind {
	OBJECT, /* has a class */
	UNSIZED, /* likewise, of unknown size */
	BLOCK, /* of a size */
	STRING,
	ARRAY,
	HASH,
	SYMBOL,
	TCL_OBJ,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum kind *kind_type __attribute__((unused));

struct table_key {
	__u64 cgroup_id;
	__u64 size; /* of a BLOCK */
	char class[CLASS_LEN];
	char comm[TASK_COMM_LEN]; /* of the process */
	__u32 pid;
	__u32 language;
	__u32 kind;
	__u32 pad;
};

struct table_value {
	__u64 count;
	__u64 bytes;
	__u64 elements;
};

#include "table.bpf.h"

struct scratch {
	struct table_key key;
	char text[LANGUAGE_TEXT_MAX];
};

#include "scratch.bpf.h"

static __always_inline void fill_process(struct table_key *key, enum language language, enum kind kind)
{
	key->pid = bpf_get_current_pid_tgid() >> 32;
	key->cgroup_id = task_current_cgroup_id();
	key->language = language;
	key->kind = kind;
	BPF_CORE_READ_STR_INTO(&key->comm, task_current(), group_leader, comm);
}

static __always_inline int count(const struct table_key *key, __u64 bytes, __u64 elements)
{
	struct table_value *value = table_find(key);

	if (!value)
		return 0;
	table_add(value, count, 1);
	/* Clang turns an atomic addition of the constant 0 into an operation that 5.10 does not have. */
	if (bytes)
		table_add(value, bytes, bytes);
	if (elements)
		table_add(value, elements, elements);
	return 0;
}

/* An object, with the argument that is the name of its class. */
static __always_inline int object(void *ctx, enum language language, enum kind kind, __u64 class, __u64 bytes)
{
	struct scratch *s;

	if (!task_current_wanted())
		return 0;
	s = scratch_begin();
	if (!s)
		return 0;
	fill_process(&s->key, language, kind);
	language_name(ctx, language, class, s->key.class, CLASS_LEN, s->text);
	count(&s->key, bytes, 0);
	scratch_end();
	return 0;
}

static __always_inline int builtin(enum language language, enum kind kind, __u64 bytes, __u64 elements)
{
	struct table_key key = {};

	if (!task_current_wanted())
		return 0;
	fill_process(&key, language, kind);
	if (kind == BLOCK)
		key.size = bytes;
	return count(&key, bytes, elements);
}

SEC("usdt/java:hotspot:object__alloc")
int java__usdt(struct pt_regs *ctx)
{
	/*
	 * The interpreter of JDK 17 and earlier, where the size is an int, passes an undefined size.
	 */
	if (language_bits(ctx, 3) < 64)
		return object(ctx, LANGUAGE_JAVA, UNSIZED, 1, 0);
	return object(ctx, LANGUAGE_JAVA, OBJECT, 1, language_number(ctx, 3));
}

SEC("usdt/ruby:ruby:object__create")
int ruby__usdt__object(struct pt_regs *ctx)
{
	return object(ctx, LANGUAGE_RUBY, UNSIZED, 0, 0);
}

SEC("usdt/ruby:ruby:string__create")
int ruby__usdt__string(struct pt_regs *ctx)
{
	return builtin(LANGUAGE_RUBY, STRING, language_number(ctx, 0), 0);
}

SEC("usdt/ruby:ruby:array__create")
int ruby__usdt__array(struct pt_regs *ctx)
{
	return builtin(LANGUAGE_RUBY, ARRAY, 0, language_number(ctx, 0));
}

SEC("usdt/ruby:ruby:hash__create")
int ruby__usdt__hash(struct pt_regs *ctx)
{
	return builtin(LANGUAGE_RUBY, HASH, 0, language_number(ctx, 0));
}

SEC("usdt/ruby:ruby:symbol__create")
int ruby__usdt__symbol(struct pt_regs *ctx)
{
	return builtin(LANGUAGE_RUBY, SYMBOL, 0, 0);
}

SEC("usdt/tcl:tcl:obj__create")
int tcl__usdt(struct pt_regs *ctx)
{
	return builtin(LANGUAGE_TCL, TCL_OBJ, 0, 0);
}

SEC("uprobe/c:malloc")
int BPF_KPROBE(c__uprobe, __u64 size)
{
	return builtin(LANGUAGE_C, BLOCK, size, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
