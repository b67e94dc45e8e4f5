/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "task.bpf.h"
#include "openssl.bpf.h"

/* One histogram per process. */
const volatile bool by_process = false;

struct hist_key {
	__u32 function;
	__u32 failed;
	__u32 pid; /* if by_process */
};

#include "histtask.bpf.h"

static __always_inline void openssl_call_end(struct pt_regs *ctx, const struct call *call, __s32 ret)
{
	struct hist_key key = { .function = call->function, .failed = ret <= 0 };

	if (by_process)
		key.pid = bpf_get_current_pid_tgid() >> 32;
	hist_record_task(&key, bpf_ktime_get_boot_ns() - call->start_ns, task_current());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
