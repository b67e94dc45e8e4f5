// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "frame.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"
#include "return.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

struct counters {
	__u64 no_begin; /* returns of calls whose entry was not observed, or was evicted */
	__u64 no_return; /* calls left by an exception or longjmp, whose task ended, or still running at the end */
};

#include "counters.bpf.h"

/* Group histograms by these. */
const volatile bool by_func = false;

struct hist_key {
	__u32 target;
};

#include "hist.bpf.h"

/* A call that has not returned. */
struct call {
	__u64 frame; /* position on the stack, which distinguishes nested calls */
	__u32 tid;
	__u32 target;
};

struct started {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u64 caller; /* return address, of a user function */
};

/*
 * Entries of calls that never return, because the task was killed or left them by longjmp or an
 * exception, remain until the map is full: then the oldest are evicted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct call);
	__type(value, struct started);
} calls SEC(".maps");

static __always_inline int begin(void *ctx, __u64 frame, __u64 caller, bool user)
{
	struct call call = { .frame = frame };
	struct started started = { .caller = caller };

	if (!observing || !task_current_wanted())
		return 0;
	call.tid = bpf_get_current_pid_tgid();
	call.target = target_id(ctx);
	started.ns = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&calls, &call, &started, BPF_NOEXIST)) {
		counter_add(no_return);
		return 0;
	}
	/*
	 * An entry with the same frame is a call that has ended, but was not observed to return: an exception
	 * or longjmp() has left it, which does not happen in the kernel.
	 */
	if (bpf_map_update_elem(&calls, &call, &started, BPF_EXIST))
		lost_add(map_full);
	else if (user)
		counter_add(no_return);
	else
		lost_add(unobserved);
	return 0;
}

static __always_inline int end(void *ctx, __u64 frame, __u64 form)
{
	__u64 now_ns = bpf_ktime_get_ns(), ns;
	struct call call = { .frame = frame };
	struct hist_key key = {};
	struct started *started;

	if (!task_current_wanted())
		return 0;
	call.tid = bpf_get_current_pid_tgid();
	call.target = target_id(ctx);
	started = bpf_map_lookup_elem(&calls, &call);
	if (!started) {
		if (form != RETURN_AT_SHARED && observing)
			counter_add(no_begin);
		return 0;
	}
	if (!return_matches(ctx, form, started->caller))
		return 0;
	ns = now_ns - started->ns;
	bpf_map_delete_elem(&calls, &call);
	counter_add_n(no_return, -1);
	if (by_func)
		key.target = call.target;
	hist_record(&key, ns);
	return 0;
}

struct fprobe_hlist___new {
	int dummy;
};

/* Exists in no kernel: a program that reads it does not load. */
struct pt_regs___none {
	long none;
} __attribute__((preserve_access_index));

/*
 * Returns of fprobe are based on fgraph from 6.14 on (4346ba160409), whose trampoline does not
 * preserve the caller's stack pointer. The program then does not load, and kprobes are used.
 */
static __always_inline __u64 frame_at_multi_end(struct pt_regs *regs)
{
	if (bpf_core_type_exists(struct fprobe_hlist___new))
		return BPF_CORE_READ((struct pt_regs___none *)regs, none);
	return PT_REGS_SP(regs);
}

static __always_inline int begin_kernel(void *ctx, __u64 frame)
{
	return begin(ctx, frame, 0, false);
}

static __always_inline int begin_user(struct pt_regs *ctx)
{
	return begin(ctx, frame_at_begin(ctx), caller_address(ctx), true);
}

static __always_inline int end_user(struct pt_regs *ctx)
{
	__u64 form = return_form();

	return end(ctx, frame_at_return(ctx, form), form);
}

SEC("fentry")
int BPF_PROG(kernel__fentry__begin)
{
	return begin_kernel(ctx, (__u64)ctx);
}

SEC("fexit")
int BPF_PROG(kernel__fentry__end)
{
	return end(ctx, (__u64)ctx, RETURN_AFTER);
}

SEC("kprobe.multi")
int kernel__multi__begin(struct pt_regs *ctx)
{
	return begin_kernel(ctx, frame_at_begin(ctx));
}

SEC("kretprobe.multi")
int kernel__multi__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_multi_end(ctx), RETURN_AFTER);
}

SEC("kprobe")
int kernel__kprobe__begin(struct pt_regs *ctx)
{
	return begin_kernel(ctx, frame_at_begin(ctx));
}

SEC("kretprobe")
int kernel__kprobe__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_end(ctx), RETURN_AFTER);
}

SEC("uprobe.multi")
int user__multi__begin(struct pt_regs *ctx)
{
	return begin_user(ctx);
}

SEC("uretprobe.multi")
int user__multi__end(struct pt_regs *ctx)
{
	return end_user(ctx);
}

SEC("uprobe")
int user__uprobe__begin(struct pt_regs *ctx)
{
	return begin_user(ctx);
}

SEC("uretprobe")
int user__uprobe__end(struct pt_regs *ctx)
{
	return end_user(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
