// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "began.bpf.h"
#include "callsetlatency.bpf.h"
#include "event.bpf.h"
#include "file.bpf.h"
#include "task.bpf.h"

/* The arguments of a call. */
enum sync_kind {
	SYNC_NONE,
	SYNC_ALL, /* none: all file systems */
	SYNC_MEMORY, /* address, length */
	SYNC_FILE, /* descriptor of the file */
	SYNC_FILE_SYSTEM, /* descriptor of a file in the file system */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum sync_kind *kind_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 latency_ns; /* CLOCK_MONOTONIC; 0 if the entry was not observed */
	__s32 ret; /* 0 or -errno */
	__u32 nr;
	__u32 abi; /* enum syscall_abi */
	__u32 kind; /* enum sync_kind */
	__u32 fd;
	__u32 has_file; /* file is set */
	struct file_info file;
	char data[PATH_BUF_SIZE]; /* names of the path */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

static __always_inline struct file *call_file(struct pt_regs *regs, const struct callset_call *call)
{
	if (call->kind < SYNC_FILE)
		return NULL;
	return task_file(task_current(), syscall_arg(regs, 0, call->compat));
}

/* The descriptor can be closed during the call, and then refer to another file. */
static __always_inline void read_file(struct event *e, struct pt_regs *regs,
				      const struct callset_call *call, const struct file *begun)
{
	struct file *file = call_file(regs, call);

	e->fd = syscall_arg(regs, 0, call->compat);
	if (!file || (begun && file != begun))
		return;
	e->has_file = 1;
	file_info_read(&e->file, e->data, __builtin_preserve_access_index(&file->f_path));
}

static __always_inline int call_ended(void *ctx, struct pt_regs *regs,
				      const struct callset_call *call, long ret)
{
	struct began b = {};
	__u32 zero = 0, len;
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);

	if (!e)
		return 0;
	__builtin_memset(e, 0, offsetof(struct event, data));
	if (began_take(&b))
		e->latency_ns = bpf_ktime_get_ns() - b.ns;
	if (!task_current_wanted())
		return 0;
	task_info_current(&e->task);
	e->ret = ret;
	e->nr = call->nr;
	e->abi = call->abi;
	e->kind = call->kind;
	if (call->kind >= SYNC_FILE)
		read_file(e, regs, call, b.file);
	len = e->file.path.len;
	if (len <= PATH_BUF_SIZE)
		event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
	return 0;
}

static __always_inline void call_begun(struct pt_regs *regs, const struct callset_call *call)
{
	began_put(call_file(regs, call));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
