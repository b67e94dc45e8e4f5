// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define CONN_ACCEPTED(ctx, sk, c) handle_accepted(ctx, sk, c)

struct sock;
struct conn;

static __always_inline void handle_accepted(void *ctx, const struct sock *sk, const struct conn *c);

#include "conn.bpf.h"

/* Only this network namespace; 0 for all. */
const volatile __u32 targ_netns = 0;

enum kind {
	KIND_CONNECT = 1,
	KIND_ACCEPT,
	KIND_CLOSE,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum kind *kind_type __attribute__((unused));

struct event {
	struct task_info task; /* the owner; its time is that of the row */
	struct sock_ends ends;
	__u32 pad;
	__u8 kind; /* enum kind */
	__u8 pad2[3];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __noinline void send(void *ctx, const struct sock *sk, const struct task_info *owner,
			    enum kind kind, __u64 now_ns)
{
	struct event e = {};

	sock_ends_read(&e.ends, sk);
	if (!ends_wanted(&e.ends) || (targ_netns && e.ends.netns != targ_netns))
		return;
	e.task = *owner;
	e.task.time_ns = now_ns;
	e.kind = kind;
	event_send(ctx, &e, sizeof(e), now_ns);
}

/* Reports whether this end closes the connection, or it ends, after it was established. */
static __always_inline bool is_close(int oldstate, int newstate)
{
	if (newstate == TCP_FIN_WAIT1 || newstate == TCP_LAST_ACK)
		return true;
	return newstate == TCP_CLOSE && (oldstate == TCP_ESTABLISHED || oldstate == TCP_CLOSE_WAIT);
}

static __always_inline void handle_change(void *ctx, const struct sock *sk, const struct conn *c,
					  int oldstate, int newstate, __u64 now_ns)
{
	if (!c->wanted || !c->owner.pid)
		return;
	if (newstate == TCP_ESTABLISHED && c->direction == DIRECTION_ACTIVE)
		send(ctx, sk, &c->owner, KIND_CONNECT, now_ns);
	else if (is_close(oldstate, newstate))
		send(ctx, sk, &c->owner, KIND_CLOSE, now_ns);
}

/*
 * Without an entry, the connection was reset before it was accepted, or it is older than the run, in
 * another network namespace.
 */
static __always_inline void handle_accepted(void *ctx, const struct sock *sk, const struct conn *c)
{
	struct task_info owner = {};
	struct conn *late;

	if (!task_current_wanted())
		return;
	task_info_current(&owner);
	send(ctx, sk, &owner, KIND_ACCEPT, owner.time_ns);
	if (c)
		return;
	late = conn_begin_late(sk, TCP_SYN_RECV);
	if (late) {
		late->state = TCP_ESTABLISHED;
		conn_set_owner(late);
	}
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE) {
		bpf_map_delete_elem(&conns, &sk);
		send(ctx, sk, &owner, KIND_CLOSE, owner.time_ns);
	}
}

static __always_inline long handle_existing(struct seq_file *seq, const struct sock *sk,
					    const struct conn *c)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
