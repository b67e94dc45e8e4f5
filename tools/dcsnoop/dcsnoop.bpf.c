// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "dcache.bpf.h"
#include "event.bpf.h"

#define NAME_MAX 255

struct event {
	struct task_info task;
	bool missed;
	char name[NAME_MAX];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline void send_event(void *ctx, const struct qstr *name, bool missed)
{
	__u32 len = BPF_CORE_READ(name, len);
	struct event e = { .missed = missed };

	task_info_current(&e.task);
	if (len >= NAME_MAX)
		len = NAME_MAX - 1;
	bpf_probe_read_kernel(e.name, len & 255, BPF_CORE_READ(name, name));
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

static __always_inline void dcache_fast(void *ctx, const struct qstr *name)
{
	send_event(ctx, name, false);
}

static __always_inline void dcache_slow(void *ctx, const struct qstr *name, bool found)
{
	if (!found)
		send_event(ctx, name, true);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
