// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "schedwait.bpf.h"
#include "taskhist.bpf.h"

/* Group histograms by the start of the wait: detail is 1 after a preemption. */
const volatile bool by_reason = false;

static __always_inline void sched_wait_ended(void *ctx, struct task_struct *prev,
					     struct task_struct *next,
					     const struct sched_wait *wait)
{
	taskhist_record(next, by_reason && wait->preempted, wait->ns);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
