// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "language.bpf.h"
#include "methods.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

#define CLASS_LEN 96
#define METHOD_LEN 80

/* Calls are counted at their return, with their time, instead of at their entry. */
const volatile bool want_latency = false;

struct table_key {
	__u64 cgroup_id;
	char class[CLASS_LEN];
	char method[METHOD_LEN];
	char comm[TASK_COMM_LEN]; /* of the process */
	__u32 pid;
	__u32 language; /* enum language, LANGUAGE_NONE for a system call */
	__u32 nr;
	__u32 abi; /* enum syscall_abi */
};

struct table_value {
	__u64 count;
	__u64 total_ns;
};

#include "table.bpf.h"

struct scratch {
	struct table_key key;
	char text[LANGUAGE_TEXT_MAX];
};

#include "scratch.bpf.h"

static __always_inline void fill_process(struct table_key *key)
{
	key->pid = bpf_get_current_pid_tgid() >> 32;
	key->cgroup_id = task_current_cgroup_id();
	BPF_CORE_READ_STR_INTO(&key->comm, task_current(), group_leader, comm);
}

static __always_inline void count(const struct table_key *key, __u64 start_ns)
{
	struct table_value *value = table_find(key);

	if (!value)
		return;
	table_add(value, count, 1);
	if (want_latency)
		table_add(value, total_ns, bpf_ktime_get_ns() - start_ns);
}

/* read_method returns memory with the key of the method, or NULL. */
static __always_inline struct scratch *read_method(void *ctx, enum language language, __u64 class, __u64 method)
{
	struct scratch *s = scratch_begin();

	if (!s)
		return NULL;
	fill_process(&s->key);
	s->key.language = language;
	language_name(ctx, language, class, s->key.class, CLASS_LEN, s->text);
	language_name(ctx, language, method, s->key.method, METHOD_LEN, s->text);
	return s;
}

static __always_inline __u64 method_hash(const struct table_key *key)
{
	return language_hash(language_hash(key->language, key->class, CLASS_LEN), key->method, METHOD_LEN);
}

static __noinline int method_entry(struct pt_regs *ctx, enum language language, __u64 class, __u64 method)
{
	struct scratch *s;

	if (!task_current_wanted())
		return 0;
	s = read_method(ctx, language, class, method);
	if (!s)
		return 0;
	if (want_latency)
		method_begin(method_hash(&s->key));
	else
		count(&s->key, 0);
	scratch_end();
	return 0;
}

static __noinline int method_return(struct pt_regs *ctx, enum language language, __u64 class, __u64 method)
{
	__u64 start_ns = 0;
	struct scratch *s;
	__u32 nested;

	if (!task_current_wanted())
		return 0;
	s = read_method(ctx, language, class, method);
	if (!s)
		return 0;
	/* Without latency only the returns of Python are observed, because 3.11 fires no probe at entries. */
	if (!want_latency || (method_end(method_hash(&s->key), &start_ns, &nested) && start_ns))
		count(&s->key, start_ns);
	scratch_end();
	return 0;
}

METHOD_PROBES(method_entry, method_return)

/*
 * System calls in progress, with latency. The key is the task, because its ID changes if a thread
 * other than the leader executes a program.
 */
struct syscall_entry {
	__u64 start_ns; /* CLOCK_MONOTONIC */
	__u32 nr;
	__u32 abi;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct syscall_entry);
} syscall_entries SEC(".maps");

static __always_inline int count_syscall(const struct syscall_entry *entry)
{
	struct scratch *s = scratch_begin();

	if (!s)
		return 0;
	fill_process(&s->key);
	s->key.nr = entry->nr;
	s->key.abi = entry->abi;
	count(&s->key, entry->start_ns);
	scratch_end();
	return 0;
}

static __always_inline int handle_enter(struct pt_regs *regs, __s32 nr, bool btf)
{
	struct syscall_entry entry = { .nr = nr & ~__X32_SYSCALL_BIT };
	__u64 task = bpf_get_current_task();

	if (nr < 0 || !task_current_wanted())
		return 0;
	entry.abi = syscall_abi(nr, syscall_is_compat_for(regs, btf));
	if (!want_latency)
		return count_syscall(&entry);
	if (!observing)
		return 0;
	entry.start_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&syscall_entries, &task, &entry, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int handle_exit(void)
{
	__u64 task = bpf_get_current_task();
	struct syscall_entry *found = bpf_map_lookup_elem(&syscall_entries, &task), entry;

	if (!found)
		return 0;
	entry = *found;
	bpf_map_delete_elem(&syscall_entries, &task);
	return count_syscall(&entry);
}

/* A call that does not return, such as exit, is not counted with latency. */
static __always_inline int handle_ended(void)
{
	__u64 task = bpf_get_current_task();

	bpf_map_delete_elem(&syscall_entries, &task);
	return methods_forget();
}

ENDED_PROGRAMS(handle_ended())

SEC("tp_btf/sys_enter")
int BPF_PROG(enter__btf, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(regs, syscall_number(nr), true));
}

SEC("raw_tp/sys_enter")
int BPF_PROG(enter__raw, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(regs, syscall_number(nr), false));
}

SEC("tp/raw_syscalls/sys_enter")
int enter__tp(struct trace_event_raw_sys_enter *ctx)
{
	return NOT_PREEMPTED(handle_enter(syscall_regs(), syscall_number(ctx->id), false));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(exit__btf)
{
	return NOT_PREEMPTED(handle_exit());
}

SEC("raw_tp/sys_exit")
int BPF_PROG(exit__raw)
{
	return NOT_PREEMPTED(handle_exit());
}

SEC("tp/raw_syscalls/sys_exit")
int exit__tp(void *ctx)
{
	return NOT_PREEMPTED(handle_exit());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
