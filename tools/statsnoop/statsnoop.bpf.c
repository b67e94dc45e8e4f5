// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "callset.bpf.h"
#include "event.bpf.h"
#include "given.bpf.h"
#include "task.bpf.h"

const volatile bool targ_failed = false;
const volatile bool want_full_path = false;

/* Which arguments of a call identify the file. */
enum stat_kind {
	STAT_NONE,
	STAT_PATH, /* path */
	STAT_AT, /* descriptor of a directory, path */
	STAT_FD, /* descriptor */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum stat_kind *kind_type __attribute__((unused));

struct event {
	struct task_info task;
	__s32 ret; /* 0 or -errno */
	__u32 nr;
	__u32 abi; /* enum syscall_abi */
	__u32 kind; /* enum stat_kind */
	struct given_path path;
	__u32 pad;
	char data[GIVEN_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

static __always_inline __u32 read_path(struct event *e, struct pt_regs *regs, bool compat)
{
	const char *text = NULL;
	__s32 dfd = AT_FDCWD;

	if (e->kind != STAT_PATH)
		dfd = syscall_arg(regs, 0, compat);
	if (e->kind == STAT_PATH)
		text = (const char *)syscall_arg(regs, 0, compat);
	else if (e->kind == STAT_AT)
		text = (const char *)syscall_arg(regs, 1, compat);
	return given_read(&e->path, e->data, text, dfd, want_full_path);
}

static __always_inline int handle_stat(void *ctx, struct pt_regs *regs,
				       const struct callset_call *call, long ret)
{
	__u32 zero = 0, len;
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);

	if (!e)
		return 0;
	__builtin_memset(e, 0, offsetof(struct event, data));
	task_info_current(&e->task);
	e->ret = ret;
	e->nr = call->nr;
	e->abi = call->abi;
	e->kind = call->kind;
	len = read_path(e, regs, call->compat);
	if (len <= GIVEN_MAX)
		event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
	return 0;
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	struct callset_call call;

	if (!callset_find(&call, regs, nr, btf))
		return 0;
	ret = callset_ret(&call, ret);
	if ((targ_failed && ret >= 0) || !task_current_wanted())
		return 0;
	return NOT_PREEMPTED(handle_stat(ctx, regs, &call, ret));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(stat__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(stat__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int stat__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
