// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "stack.bpf.h"
#include "stackwalk.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

const volatile __u64 targ_min_ns = 1000000;
const volatile bool want_args = false;
const volatile bool want_kernel_stack = false;
const volatile bool want_user_stack = false;

struct counters {
	__u64 no_begin; /* returns of calls whose entry was not observed, or was evicted */
	__u64 no_return; /* calls left by an exception or longjmp, whose task ended, or still running at the end */
	__u64 no_stack; /* slow calls of kernel functions whose callers the kernel could not find at their return */
};

#define ARGS_MAX 6

#if defined(__TARGET_ARCH_x86)
#define PARM6(ctx) ((ctx)->r9)
#else
#define PARM6(ctx) (((const struct user_pt_regs *)(ctx))->regs[5])
#endif

struct call {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u64 caller; /* return address, of a user function */
	__u64 args[ARGS_MAX];
};

#include "funccall.bpf.h"

/* Followed by the two stacks. */
struct event {
	struct task_info task;
	__u64 ns;
	__u64 retval;
	__u64 args[ARGS_MAX];
	__u32 target;
	__u32 kernel_len;
	__u32 user_len;
	__u32 pad;
};

struct scratch {
	struct event event;
	char stacks[STACK_BYTES + STACK_MAX_BYTES];
};

#include "scratch.bpf.h"

static __always_inline int begin(struct pt_regs *ctx, __u64 caller, bool user)
{
	struct call call = { .caller = caller };

	if (!observing || !task_current_wanted())
		return 0;
	if (want_args) {
		call.args[0] = PT_REGS_PARM1(ctx);
		call.args[1] = PT_REGS_PARM2(ctx);
		call.args[2] = PT_REGS_PARM3(ctx);
		call.args[3] = PT_REGS_PARM4(ctx);
		call.args[4] = PT_REGS_PARM5(ctx);
		call.args[5] = PARM6(ctx);
	}
	func_call_begin(target_id(ctx), frame_at_begin(ctx), &call, user);
	return 0;
}

/* user_caller is 0 if the program runs after the return. */
static __always_inline void send(struct pt_regs *ctx, __u32 target, const struct call *call, __u64 ns,
				 __u64 user_caller, bool kernel)
{
	__u32 kind = kernel ? SCRATCH_KERNEL : 0;
	struct scratch *s = scratch_begin_for(kind);
	__u32 size = sizeof(struct event);

	if (!s)
		return;
	task_info_current(&s->event.task);
	s->event.ns = ns;
	s->event.retval = PT_REGS_RC(ctx);
	__builtin_memcpy(s->event.args, call->args, sizeof(call->args));
	s->event.target = target;
	if (want_kernel_stack)
		size += s->event.kernel_len = stack_read(ctx, (void *)s + size);
	/* Before 5.16 (19138af1bd88) the stack of a kretprobe ends at its trampoline. */
	if (want_kernel_stack && kernel && s->event.kernel_len <= sizeof(__u64))
		counter_add(no_stack);
	if (want_user_stack)
		size += s->event.user_len = user_stack_read(ctx, (void *)s + size, user_caller);
	event_send(ctx, s, size, s->event.task.time_ns);
	scratch_end_for(kind);
}

static __always_inline int end(struct pt_regs *ctx, __u64 frame, __u64 form, bool kernel)
{
	__u64 now_ns = bpf_ktime_get_ns(), ns;
	__u32 target;
	struct call call;

	if (!task_current_wanted())
		return 0;
	target = target_id(ctx);
	if (!func_call_end(ctx, target, frame, form, &call))
		return 0;
	ns = now_ns - call.ns;
	if (ns >= targ_min_ns)
		send(ctx, target, &call, ns, form == RETURN_AFTER ? 0 : user_caller_at_entry(ctx), kernel);
	return 0;
}

static __always_inline int end_user(struct pt_regs *ctx)
{
	__u64 form = return_form();

	return end(ctx, frame_at_return(ctx, form), form, false);
}

SEC("kprobe.multi")
int kernel__multi__begin(struct pt_regs *ctx)
{
	return begin(ctx, 0, false);
}

SEC("kretprobe.multi")
int kernel__multi__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_multi_end(ctx), RETURN_AFTER, true);
}

SEC("kprobe")
int kernel__kprobe__begin(struct pt_regs *ctx)
{
	return begin(ctx, 0, false);
}

SEC("kretprobe")
int kernel__kprobe__end(struct pt_regs *ctx)
{
	return end(ctx, frame_at_end(ctx), RETURN_AFTER, true);
}

SEC("uprobe.multi")
int user__multi__begin(struct pt_regs *ctx)
{
	return begin(ctx, caller_address(ctx), true);
}

SEC("uretprobe.multi")
int user__multi__end(struct pt_regs *ctx)
{
	return end_user(ctx);
}

SEC("uprobe")
int user__uprobe__begin(struct pt_regs *ctx)
{
	return begin(ctx, caller_address(ctx), true);
}

SEC("uretprobe")
int user__uprobe__end(struct pt_regs *ctx)
{
	return end_user(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
