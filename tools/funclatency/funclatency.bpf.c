// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "target.bpf.h"
#include "task.bpf.h"

struct counters {
	__u64 no_begin; /* returns of calls whose entry was not observed, or was evicted */
	__u64 no_return; /* calls left by an exception or longjmp, whose task ended, or still running at the end */
};

/* Group histograms by these. */
const volatile bool by_func = false;

struct hist_key {
	__u32 target;
};

#include "histtask.bpf.h"

struct call {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u64 caller; /* return address, of a user function */
};

#include "funccall.bpf.h"

static __always_inline int begin(void *ctx, __u64 frame, __u64 caller, bool user)
{
	struct call call = { .caller = caller };

	if (observing && task_current_wanted())
		func_call_begin(target_id(ctx), frame, &call, user);
	return 0;
}

/*
 * A user function belongs to the current task. A kernel function can run in an interrupt, and then it
 * does not.
 */
static __always_inline int end(void *ctx, __u64 frame, __u64 form, bool user)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct hist_key key = {};
	struct call call;
	__u32 target;

	if (!task_current_wanted())
		return 0;
	target = target_id(ctx);
	if (!func_call_end(ctx, target, frame, form, &call))
		return 0;
	if (by_func)
		key.target = target;
	if (user)
		hist_record_task(&key, now_ns - call.ns, task_current());
	else
		hist_record(&key, now_ns - call.ns);
	return 0;
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

	return end(ctx, frame_at_return(ctx, form), form, true);
}

SEC("fentry")
int BPF_PROG(kernel__fentry__begin)
{
	return begin_kernel(ctx, (__u64)ctx);
}

SEC("fexit")
int BPF_PROG(kernel__fentry__end)
{
	return end(ctx, (__u64)ctx, RETURN_AFTER, false);
}

SEC("kprobe.multi")
int kernel__multi__begin(struct pt_regs *ctx)
{
	return begin_kernel(ctx, frame_at_begin(ctx));
}

SEC("kretprobe.multi")
int kernel__multi__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_multi_end(ctx), RETURN_AFTER, false);
}

SEC("kprobe")
int kernel__kprobe__begin(struct pt_regs *ctx)
{
	return begin_kernel(ctx, frame_at_begin(ctx));
}

SEC("kretprobe")
int kernel__kprobe__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_end(ctx), RETURN_AFTER, false);
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
