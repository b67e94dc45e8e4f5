// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "file.bpf.h"
#include "fsop.bpf.h"
#include "task.bpf.h"

const volatile __u64 targ_min_ns = 10000000;

struct event {
	struct task_info task;
	__u64 ns;
	__s64 ret; /* bytes, 0 or -errno */
	__s64 offset; /* -1 if unknown */
	__u32 op; /* enum fs_op */
	__u32 pad;
	struct file_info file;
	char data[PATH_BUF_SIZE]; /* names of the path */
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

struct scratch {
	struct event event;
};

#include "scratch.bpf.h"

static __always_inline void send_event(void *ctx, struct event *e, const struct fs_op_end *end)
{
	__u32 len;

	task_info_current(&e->task);
	e->ns = end->ns;
	e->ret = end->ret;
	e->offset = end->offset;
	e->op = end->op;
	file_info_read(&e->file, e->data, end->path);
	file_info_inode(&e->file, fs_op_inode(end));
	len = e->file.path.len;
	if (len <= PATH_BUF_SIZE)
		event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
}

static __always_inline void fs_op_done(void *ctx, const struct fs_op_end *end)
{
	struct scratch *s;

	if (end->ns < targ_min_ns)
		return;
	s = scratch_begin();
	if (!s)
		return;
	send_event(ctx, &s->event, end);
	scratch_end();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
