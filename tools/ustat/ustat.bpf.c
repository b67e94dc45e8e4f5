// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "language.bpf.h"
#include "task.bpf.h"

#define ARGS_LEN 96

struct table_key {
	__u64 cgroup_id;
	__u32 pid;
	__u32 language;
};

struct table_value {
	__u64 methods;
	__u64 collections;
	__u64 objects;
	__u64 loads;
	__u64 exceptions;
	__u64 threads;
	__u64 since_ns; /* when the following was read */
	char comm[TASK_COMM_LEN]; /* of the process */
	char args[ARGS_LEN]; /* its command line, with NUL bytes */
};

#include "table.bpf.h"

static __always_inline void read_process(struct table_value *value)
{
	struct task_struct *task = task_current();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u64 start = BPF_CORE_READ(mm, arg_start), end = BPF_CORE_READ(mm, arg_end), len = end - start;

	value->since_ns = bpf_ktime_get_ns();
	BPF_CORE_READ_STR_INTO(&value->comm, task, group_leader, comm);
	if (len > ARGS_LEN)
		len = ARGS_LEN;
	bpf_probe_read_user(value->args, len, (void *)start);
}

static __always_inline struct table_value *find(enum language language)
{
	struct table_key key = { .language = language };
	struct table_value *value;

	if (!task_current_wanted())
		return NULL;
	key.pid = bpf_get_current_pid_tgid() >> 32;
	key.cgroup_id = task_current_cgroup_id();
	value = table_find(&key);
	if (value && !value->since_ns)
		read_process(value);
	return value;
}

/* Several probes of a hook are its parts. */
#define COUNT(name, section, language, member)                \
	SEC(section)                                          \
	int name(void *ctx)                                   \
	{                                                     \
		struct table_value *value = find(language);   \
                                                              \
		if (value)                                    \
			table_add(value, member, 1);          \
		return 0;                                     \
	}

COUNT(java__usdt__method, "usdt/java:hotspot:method__entry", LANGUAGE_JAVA, methods)
COUNT(java__usdt__gc, "usdt/java:hotspot:gc__begin", LANGUAGE_JAVA, collections)
COUNT(java__usdt__object, "usdt/java:hotspot:object__alloc", LANGUAGE_JAVA, objects)
COUNT(java__usdt__class, "usdt/java:hotspot:class__loaded", LANGUAGE_JAVA, loads)
COUNT(java__usdt__thread, "usdt/java:hotspot:thread__start", LANGUAGE_JAVA, threads)
COUNT(perl__usdt, "usdt/perl:perl:sub__entry", LANGUAGE_PERL, methods)
COUNT(php__usdt__function, "usdt/php:php:function__entry", LANGUAGE_PHP, methods)
COUNT(php__usdt__file, "usdt/php:php:compile__file__entry", LANGUAGE_PHP, loads)
COUNT(php__usdt__exception, "usdt/php:php:exception__thrown", LANGUAGE_PHP, exceptions)
/* Python 3.11 fires no probe at the entry of functions. */
COUNT(python__usdt__function, "usdt/python:python:function__return", LANGUAGE_PYTHON, methods)
COUNT(python__usdt__gc, "usdt/python:python:gc__start", LANGUAGE_PYTHON, collections)
COUNT(python__usdt__import, "usdt/python:python:import__find__load__start", LANGUAGE_PYTHON, loads)
COUNT(rubymethod__usdt__method, "usdt/ruby:ruby:method__entry", LANGUAGE_RUBY, methods)
COUNT(rubymethod__usdt__c_method, "usdt/ruby:ruby:cmethod__entry", LANGUAGE_RUBY, methods)
COUNT(ruby__usdt__gc, "usdt/ruby:ruby:gc__mark__begin", LANGUAGE_RUBY, collections)
COUNT(ruby__usdt__object, "usdt/ruby:ruby:object__create", LANGUAGE_RUBY, objects)
COUNT(ruby__usdt__string, "usdt/ruby:ruby:string__create", LANGUAGE_RUBY, objects)
COUNT(ruby__usdt__array, "usdt/ruby:ruby:array__create", LANGUAGE_RUBY, objects)
COUNT(ruby__usdt__hash, "usdt/ruby:ruby:hash__create", LANGUAGE_RUBY, objects)
COUNT(ruby__usdt__require, "usdt/ruby:ruby:require__entry", LANGUAGE_RUBY, loads)
COUNT(ruby__usdt__load, "usdt/ruby:ruby:load__entry", LANGUAGE_RUBY, loads)
COUNT(ruby__usdt__raise, "usdt/ruby:ruby:raise", LANGUAGE_RUBY, exceptions)
COUNT(tcl__usdt__proc, "usdt/tcl:tcl:proc__entry", LANGUAGE_TCL, methods)
COUNT(tcl__usdt__object, "usdt/tcl:tcl:obj__create", LANGUAGE_TCL, objects)

COUNT(node__uprobe, "uprobe/node:" V8_COLLECT_GARBAGE, LANGUAGE_NODE, collections)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
