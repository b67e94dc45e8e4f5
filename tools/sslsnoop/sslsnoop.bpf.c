/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"
#include "openssl.bpf.h"

/* Only failed calls. */
const volatile bool targ_failed = false;

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u64 channel;
	__u32 function;
	__s32 ret;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline void openssl_call_end(struct pt_regs *ctx, const struct call *call, __s32 ret)
{
	struct event e = { .channel = call->channel, .function = call->function, .ret = ret };

	if (targ_failed && ret > 0)
		return;
	task_info_current(&e.task);
	e.delta_ns = e.task.time_ns - call->start_ns;
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
