// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "frame.bpf.h"
#include "lost.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

struct counters {
	__u64 no_begin; /* returns of calls whose begin was not seen, or was forgotten for room */
};

#include "counters.bpf.h"

/* What tells the histograms apart. */
const volatile bool by_func = false;

struct hist_key {
	__u32 target;
};

#include "hist.bpf.h"

/* A call of a function that has not returned. */
struct call {
	__u64 frame; /* where on the stack it is, so that calls within calls are not mixed up */
	__u32 tid;
	__u32 target;
};

/*
 * Calls that never return, as their task was killed or jumped out of them, stay until
 * there is no room: then the oldest go.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct call);
	__type(value, __u64); /* CLOCK_MONOTONIC ns */
} calls SEC(".maps");

static __always_inline int begin(void *ctx, __u64 frame)
{
	struct call call = { .frame = frame };
	__u64 now_ns;

	if (!task_current_wanted())
		return 0;
	call.tid = bpf_get_current_pid_tgid();
	call.target = target_id(ctx);
	now_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&calls, &call, &now_ns, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int end(void *ctx, __u64 frame)
{
	__u64 now_ns = bpf_ktime_get_ns(), ns;
	struct call call = { .frame = frame };
	struct hist_key key = {};
	__u64 *begin_ns;

	if (!task_current_wanted())
		return 0;
	call.tid = bpf_get_current_pid_tgid();
	call.target = target_id(ctx);
	begin_ns = bpf_map_lookup_elem(&calls, &call);
	if (!begin_ns) {
		counter_add(no_begin);
		return 0;
	}
	ns = now_ns - *begin_ns;
	bpf_map_delete_elem(&calls, &call);
	if (by_func)
		key.target = call.target;
	hist_record(&key, ns);
	return 0;
}

struct fprobe_hlist___new {
	int dummy;
};

/* No kernel has it: a program that reads it does not load. */
struct pt_regs___none {
	long none;
} __attribute__((preserve_access_index));

/*
 * fprobe's returns are fgraph's from 6.14 on (4346ba160409), whose trampoline does not keep
 * the stack pointer as it is in the caller. There the program does not load, and kprobes
 * are taken.
 */
static __always_inline __u64 frame_at_multi_end(struct pt_regs *regs)
{
	if (bpf_core_type_exists(struct fprobe_hlist___new))
		return BPF_CORE_READ((struct pt_regs___none *)regs, none);
	return PT_REGS_SP(regs);
}

SEC("fentry")
int BPF_PROG(kernel__fentry__begin)
{
	return begin(ctx, (__u64)ctx);
}

SEC("fexit")
int BPF_PROG(kernel__fentry__end)
{
	return end(ctx, (__u64)ctx);
}

SEC("kprobe.multi")
int kernel__multi__begin(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx));
}

SEC("kretprobe.multi")
int kernel__multi__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_multi_end(ctx));
}

SEC("kprobe")
int kernel__kprobe__begin(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx));
}

SEC("kretprobe")
int kernel__kprobe__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_end(ctx));
}

SEC("uprobe.multi")
int user__multi__begin(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx));
}

SEC("uretprobe.multi")
int user__multi__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_end(ctx));
}

SEC("uprobe")
int user__uprobe__begin(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx));
}

SEC("uretprobe")
int user__uprobe__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_end(ctx));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
