/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

#define LINE_MAX 8192

/* Include lines that programs other than bash read with the library. */
const volatile bool targ_any_program = false;

struct event {
	struct task_info task;
	__u32 line_len;
	__u8 truncated;
	__u8 pad[3];
};

struct scratch {
	struct event event;
	char line[LINE_MAX];
};

#include "scratch.bpf.h"

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline bool is_bash(void)
{
	const unsigned char *at = BPF_CORE_READ(task_current(), mm, exe_file, f_path.dentry, d_name.name);
	char name[6] = {}; /* "rbash" */

	bpf_probe_read_kernel_str(name, sizeof(name), at);
	if (name[0] == 'r')
		return name[1] == 'b' && name[2] == 'a' && name[3] == 's' && name[4] == 'h';
	return name[0] == 'b' && name[1] == 'a' && name[2] == 's' && name[3] == 'h';
}

/* read_line reads the result of readline(): the line without the newline. */
static __always_inline long read_line(struct scratch *s, const char *line)
{
	long len = read_user_str(s->line, sizeof(s->line), line);
	char more = 0;

	if (len <= 0 || len > LINE_MAX)
		return 0;
	if (len == LINE_MAX)
		bpf_probe_read_user(&more, sizeof(more), line + len - 1);
	s->event.truncated = more != 0;
	s->event.line_len = len - 1;
	return len - 1;
}

static __always_inline int handle_return(struct pt_regs *ctx)
{
	const char *line = (const char *)PT_REGS_RC(ctx);
	struct scratch *s;
	__u64 size;

	if (!line || !task_current_wanted())
		return 0;
	s = scratch_begin();
	if (!s)
		return 0;
	task_info_current(&s->event.task);
	size = sizeof(s->event) + read_line(s, line);
	if (size <= sizeof(*s))
		event_send(ctx, s, size, s->event.task.time_ns);
	scratch_end();
	return 0;
}

SEC("uretprobe/bash:readline")
int line__uprobe__bash(struct pt_regs *ctx)
{
	return handle_return(ctx);
}

SEC("uretprobe/readline:readline")
int line__uprobe__library(struct pt_regs *ctx)
{
	if (!targ_any_program && !is_bash())
		return 0;
	return handle_return(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
