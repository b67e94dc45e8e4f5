// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Changes of sockets that are older than the run are rows too. */
#define CONN_BEGINS_LATE(state) true
#include "conn.bpf.h"

struct event {
	struct task_info task; /* the owner; its time is that of the row */
	__u64 skaddr;
	__u64 duration_ns; /* in the old state; 0 if its start was not observed */
	struct sock_ends ends;
	__s32 error; /* -errno */
	__u8 oldstate;
	__u8 newstate;
	__u8 direction;
	__u8 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline void handle_change(void *ctx, const struct sock *sk, const struct conn *c,
					  int oldstate, int newstate, __u64 now_ns)
{
	struct event e = {};

	if (!c->wanted)
		return;
	sock_ends_read(&e.ends, sk);
	if (!ends_wanted(&e.ends))
		return;
	e.task = c->owner;
	e.task.time_ns = now_ns;
	e.skaddr = (__u64)sk;
	if (c->changed_ns)
		e.duration_ns = now_ns - c->changed_ns;
	e.error = -BPF_CORE_READ(sk, sk_err);
	e.oldstate = oldstate;
	e.newstate = newstate;
	e.direction = c->direction;
	event_send(ctx, &e, sizeof(e), now_ns);
}

static __always_inline long handle_existing(struct seq_file *seq, const struct sock *sk,
					    const struct conn *c)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
