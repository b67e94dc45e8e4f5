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

#define AT_REMOVEDIR 0x200

const volatile bool want_full_path = false;

/* The arguments of a call. */
enum gone_kind {
	GONE_NONE,
	GONE_UNLINK, /* path */
	GONE_RMDIR, /* path */
	GONE_UNLINKAT, /* dirfd, path, flags */
	GONE_RENAME, /* path, path */
	GONE_RENAMEAT, /* dirfd, path, dirfd, path */
	GONE_RENAMEAT2, /* the same, flags */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum gone_kind *kind_type __attribute__((unused));

struct event {
	struct task_info task;
	__u32 nr;
	__u32 abi; /* enum syscall_abi */
	__u32 flags; /* of renameat2 */
	bool renamed;
	bool directory; /* removed a directory */
	__u8 pad[2];
	struct given_path path;
	struct given_path to;
	char data[2 * GIVEN_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

/* at is the index of the path's argument; the descriptor, if any, is the one before it. */
static __always_inline __u32 read_given(struct given_path *g, char *buf, struct pt_regs *regs, int at,
					bool has_dfd, bool compat)
{
	__s32 dfd = has_dfd ? syscall_arg(regs, at - 1, compat) : AT_FDCWD;

	return given_read(g, buf, (const char *)syscall_arg(regs, at, compat), dfd, want_full_path);
}

static __always_inline __u32 read_paths(struct event *e, struct pt_regs *regs,
					const struct callset_call *call)
{
	__u32 kind = call->kind, len;

	if (kind == GONE_RENAME)
		len = read_given(&e->path, e->data, regs, 0, false, call->compat);
	else if (kind == GONE_UNLINK || kind == GONE_RMDIR)
		return read_given(&e->path, e->data, regs, 0, false, call->compat);
	else
		len = read_given(&e->path, e->data, regs, 1, true, call->compat);
	if (!e->renamed || len > GIVEN_MAX)
		return len;
	barrier_var(len);
	if (kind == GONE_RENAME)
		return len + read_given(&e->to, e->data + len, regs, 1, false, call->compat);
	return len + read_given(&e->to, e->data + len, regs, 3, true, call->compat);
}

static __always_inline int handle_gone(void *ctx, struct pt_regs *regs,
				       const struct callset_call *call)
{
	__u32 zero = 0, len;
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);

	if (!e)
		return 0;
	__builtin_memset(e, 0, offsetof(struct event, data));
	task_info_current(&e->task);
	e->nr = call->nr;
	e->abi = call->abi;
	e->renamed = call->kind >= GONE_RENAME;
	e->directory = call->kind == GONE_RMDIR;
	if (call->kind == GONE_UNLINKAT)
		e->directory = syscall_arg(regs, 2, call->compat) & AT_REMOVEDIR;
	if (call->kind == GONE_RENAMEAT2)
		e->flags = syscall_arg(regs, 4, call->compat);
	len = read_paths(e, regs, call);
	if (len <= 2 * GIVEN_MAX)
		event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
	return 0;
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	struct callset_call call;

	if (!callset_find(&call, regs, nr, btf))
		return 0;
	if (callset_ret(&call, ret) || !task_current_wanted())
		return 0;
	return NOT_PREEMPTED(handle_gone(ctx, regs, &call));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(gone__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(gone__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int gone__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
