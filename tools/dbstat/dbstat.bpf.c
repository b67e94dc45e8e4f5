/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define QUERY_TEXT 0

#include "query.bpf.h"

struct hist_key {
	__u32 database;
	__u32 command;
};

#include "histtask.bpf.h"

static __always_inline void query_end(void *ctx, struct query *q)
{
	struct hist_key key = { .database = q->event.database, .command = q->event.command };

	hist_record_task(&key, q->event.latency_ns, task_current());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
