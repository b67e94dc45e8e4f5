/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "event.bpf.h"

#define QUERY_TEXT 4096

#include "query.bpf.h"

static __always_inline void query_end(void *ctx, struct query *q)
{
	__u64 size = sizeof(q->event) + q->event.text_len;

	task_info_current(&q->event.task);
	if (size <= sizeof(q->event) + sizeof(q->text))
		event_send(ctx, q, size, q->event.task.time_ns);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
