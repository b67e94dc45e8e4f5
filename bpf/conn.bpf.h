/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CONN_BPF_H
#define __CONN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "sock.bpf.h"
#include "syn.bpf.h"
#include "accept.bpf.h"

/*
 * TCP sockets and their owners, from their first state on. connect, accept, listen and close (the
 * change to FIN_WAIT1 or LAST_ACK) run in the context of the calling task. Other changes run in any
 * task, when a packet arrives, so the owner is stored.
 */

#define NO_UID (-1U) /* INVALID_UID of the kernel */
#define PF_KTHREAD 0x00200000

/* The new states at which an entry is added for a socket that has none. */
#ifndef CONN_BEGINS_LATE
#define CONN_BEGINS_LATE(state) state_in(state, 1 << TCP_ESTABLISHED)
#endif

enum direction {
	DIRECTION_UNKNOWN,
	DIRECTION_ACTIVE,
	DIRECTION_PASSIVE,
};

/* Keeps the type in the BTF of the object, for comparison with the Go constants. */
const enum direction *direction_type __attribute__((unused));

struct conn {
	struct task_info owner; /* pid 0 until known; its time is when the owner was set */
	__u64 start_ns; /* CLOCK_BOOTTIME, as the next two; 0 if not observed */
	__u64 established_ns; /* likewise */
	__u64 changed_ns; /* last change of state */
	__u32 hash; /* skc_hash, once established: the address of a socket is reused */
	__u32 retrans_segs; /* tcp_sock.total_retrans when the program last read it */
	__u8 direction;
	__u8 state; /* last observed state */
	bool wanted; /* by the task filter */
	__u8 pad[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, const struct sock *);
	__type(value, struct conn);
} conns SEC(".maps");

/*
 * Defined by the tool, and called once per change of state. c->changed_ns is still the time of the
 * previous change.
 */
static __always_inline void handle_change(void *ctx, const struct sock *sk, const struct conn *c,
					  int oldstate, int newstate, __u64 now_ns);

/*
 * Defined by the tool, and called for sockets that existed before the run. If it does not return 0,
 * the kernel calls the iterator again for the socket.
 */
static __always_inline long handle_existing(struct seq_file *seq, const struct sock *sk,
					    const struct conn *c);

/* Reports whether this is a state of a connection that has begun and not ended. */
static __always_inline bool state_is_open(__u8 state)
{
	const __u32 open = 1 << TCP_ESTABLISHED | 1 << TCP_SYN_SENT | 1 << TCP_SYN_RECV |
			   1 << TCP_FIN_WAIT1 | 1 << TCP_FIN_WAIT2 | 1 << TCP_CLOSE_WAIT |
			   1 << TCP_LAST_ACK | 1 << TCP_CLOSING;

	return state < 32 && open & 1 << state;
}

/*
 * Reports whether a state is in a set of bits. After a comparison with each state, the verifier would
 * process what follows once for each of them: its value is then known.
 */
static __always_inline bool state_in(__u32 state, __u32 set)
{
	__u32 bit = 1U << (state & 31);

	barrier_var(bit);
	return bit & set;
}

static __always_inline __u32 sock_retrans_segs(const struct sock *sk)
{
	return BPF_CORE_READ((const struct tcp_sock *)sk, total_retrans);
}

static __always_inline void conn_set_owner(struct conn *c)
{
	task_info_current(&c->owner);
	c->wanted = task_current_wanted();
}

/*
 * Returns the connection of a socket and sets its owner, or returns NULL and sets no owner
 * (NO_UID).
 */
static __always_inline struct conn *conn_find(const struct sock *sk, struct task_info *owner)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &sk);

	if (c)
		*owner = c->owner;
	else
		owner->uid = NO_UID;
	return c;
}

/* MPTCP, from kernel 5.6 on. */
struct tcp_sock___mptcp {
	bool is_mptcp;
} __attribute__((preserve_access_index));

struct mptcp_subflow_context___conn {
	struct sock *conn;
} __attribute__((preserve_access_index));

/* The first subflow of the MPTCP connection that the socket belongs to, or NULL. */
static __always_inline struct sock *sock_first_subflow(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = (const struct inet_connection_sock *)sk;
	const struct mptcp_subflow_context___conn *subflow;
	const struct tcp_sock___mptcp *tp = (const void *)sk;
	const struct sock *conn;

	if (!bpf_core_field_exists(struct tcp_sock___mptcp, is_mptcp) ||
	    !bpf_core_field_exists(struct mptcp_subflow_context___conn, conn) ||
	    !BPF_CORE_READ(tp, is_mptcp))
		return NULL;
	subflow = BPF_CORE_READ(icsk, icsk_ulp_data);
	conn = subflow ? BPF_CORE_READ(subflow, conn) : NULL;
	return conn && sock_is_mptcp(conn) ? mptcp_first(conn) : NULL;
}

/*
 * Further subflows of an MPTCP connection are connected by kernel workers, and not accepted by a
 * task: their owner is that of the first subflow.
 */
static __always_inline void conn_set_subflow_owner(const struct sock *sk, struct conn *c)
{
	struct sock *first = sock_first_subflow(sk);
	const struct conn *first_conn;

	if (!first || first == sk)
		return;
	first_conn = bpf_map_lookup_elem(&conns, &first);
	if (first_conn) {
		c->owner = first_conn->owner;
		c->wanted = first_conn->wanted;
	} else {
		c->owner = (struct task_info){ .uid = NO_UID };
		c->wanted = !task_filter;
	}
}

static __always_inline bool conn_wanted(const struct conn *c)
{
	return c ? c->wanted : !task_filter;
}

/*
 * old is the entry of the socket's previous connection, if its end was not observed. If the entry
 * cannot be added in either of the two programs, only the second one counts the loss.
 */
static __always_inline void conn_begin(void *ctx, const struct sock *sk, const struct conn *old,
				       int oldstate, int newstate, bool second)
{
	struct conn c = {
		.owner.uid = NO_UID,
		.state = newstate,
		.wanted = !task_filter,
	};
	__u64 now_ns = bpf_ktime_get_boot_ns();

	if (!sock_is_tcp(sk))
		return;
	if (old && old->state != TCP_CLOSE)
		lost_add(program_busy);
	if (state_in(newstate, 1 << TCP_SYN_RECV)) {
		c.direction = DIRECTION_PASSIVE;
	} else {
		conn_set_owner(&c);
		if (state_in(newstate, 1 << TCP_SYN_SENT)) {
			c.direction = DIRECTION_ACTIVE;
			conn_set_subflow_owner(sk, &c);
		}
	}
	c.start_ns = now_ns;
	c.changed_ns = now_ns;
	if (bpf_map_update_elem(&conns, &sk, &c, BPF_ANY)) {
		if (!second)
			return;
		lost_add(map_full);
	}
	c.changed_ns = 0;
	if (newstate != TCP_CLOSE) /* it never is, but only conn_begins() knows */
		handle_change(ctx, sk, &c, oldstate, newstate, now_ns);
}

/*
 * Adds a connection that began before the run, or whose start was not observed. If the map was full
 * at its start, the loss is already counted.
 */
static __always_inline struct conn *conn_begin_late(const struct sock *sk, int oldstate)
{
	struct conn c = { .owner.uid = NO_UID, .wanted = !task_filter };

	if (!sock_is_tcp(sk))
		return NULL;
	if (state_in(oldstate, 1 << TCP_SYN_SENT))
		c.direction = DIRECTION_ACTIVE;
	else if (state_in(oldstate, 1 << TCP_SYN_RECV))
		c.direction = DIRECTION_PASSIVE;
	c.retrans_segs = sock_retrans_segs(sk);
	bpf_map_update_elem(&conns, &sk, &c, BPF_NOEXIST);
	return bpf_map_lookup_elem(&conns, &sk);
}

/*
 * The socket of a passive connection is created when the handshake is complete, or at the SYN with
 * TCP Fast Open. The first sample of the round-trip time, taken just before, is the time since the
 * SYN/ACK was sent, which is the start.
 */
static __always_inline void conn_establish(const struct sock *sk, struct conn *c, __u64 now_ns)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u64 rtt_ns = (BPF_CORE_READ(tp, srtt_us) >> 3) * 1000ULL;

	if (!c->owner.pid)
		conn_set_subflow_owner(sk, c);
	c->established_ns = now_ns;
	c->hash = BPF_CORE_READ(sk, __sk_common.skc_hash);
	if (c->direction == DIRECTION_PASSIVE) /* includes SYN/ACKs */
		c->retrans_segs = sock_retrans_segs(sk);
	if (c->direction == DIRECTION_PASSIVE && c->start_ns > now_ns - rtt_ns)
		c->start_ns = now_ns - rtt_ns;
}

/*
 * The owner is the task that called connect, accept or listen. For connections without such a call
 * (accepted by io_uring), it is the first task that closes the connection, except for kernel
 * threads, which close on behalf of others.
 */
static __always_inline void conn_closing(const struct sock *sk, struct conn *c)
{
	if (!c->owner.pid)
		conn_set_subflow_owner(sk, c);
	if (!c->owner.pid && !(BPF_CORE_READ(task_current(), flags) & PF_KTHREAD))
		conn_set_owner(c);
}

static __always_inline bool conn_begins(int oldstate, int newstate)
{
	return state_in(newstate, 1 << TCP_SYN_SENT | 1 << TCP_LISTEN) ||
	       (state_in(newstate, 1 << TCP_SYN_RECV) && state_in(oldstate, 1 << TCP_LISTEN));
}

/*
 * The kernel skips a program that is already running on the same CPU: when a softirq interrupts it
 * or, from 7.0 on (a46023d5616e), another task preempts it. So each program exists twice. The
 * second one finds the changes handled by the first in the stored state. At the end, the second one
 * deletes the entry.
 */
static __always_inline int handle_state(void *ctx, const struct sock *sk, int oldstate,
					int newstate, bool second)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &sk);
	__u64 now_ns;

	if (!c || c->state != newstate) {
		if (conn_begins(oldstate, newstate)) {
			conn_begin(ctx, sk, c, oldstate, newstate, second);
			return 0;
		}
		if (!c && CONN_BEGINS_LATE(newstate))
			c = conn_begin_late(sk, oldstate);
		if (!c)
			return 0;
		now_ns = bpf_ktime_get_boot_ns();
		c->state = newstate;
		if (state_in(oldstate, 1 << TCP_SYN_SENT) && c->start_ns)
			c->start_ns = sock_syn_ns(sk, c->start_ns, now_ns);
		if (state_in(newstate, 1 << TCP_ESTABLISHED))
			conn_establish(sk, c, now_ns);
		else if (state_in(newstate, 1 << TCP_FIN_WAIT1 | 1 << TCP_LAST_ACK))
			conn_closing(sk, c);
		handle_change(ctx, sk, c, oldstate, newstate, now_ns);
		c->changed_ns = now_ns;
	}
	if (second && newstate == TCP_CLOSE)
		bpf_map_delete_elem(&conns, &sk);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__btf, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, false);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__btf__again, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, true);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(state__raw, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, false);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(state__raw__again, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, true);
}

/*
 * Called once for each accepted connection, with c if it is still open, after the owner is set. A
 * tool can define it.
 */
#ifndef CONN_ACCEPTED
#define CONN_ACCEPTED(ctx, sk, c)
#endif

static __always_inline void handle_accept(void *ctx, const struct sock *listener,
					  const struct sock *sk, enum accept_run run)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &sk);

	if (c && !c->owner.pid) {
		conn_set_owner(c);
		CONN_ACCEPTED(ctx, sk, c);
	} else if (!c && run != ACCEPT_SECOND) {
		CONN_ACCEPTED(ctx, sk, NULL);
	}
}

/*
 * conn_begin_existing adds a socket that existed before the run. If its record does not fit, the
 * entry is removed, because the kernel calls the iterator again for the socket.
 */
static __always_inline int conn_begin_existing(struct seq_file *seq, const struct sock *sk,
					       struct conn *c)
{
	__u8 state = BPF_CORE_READ(sk, __sk_common.skc_state);
	long err;

	if ((!state_is_open(state) && state != TCP_LISTEN) || !sock_is_tcp(sk))
		return 0;
	c->hash = BPF_CORE_READ(sk, __sk_common.skc_hash);
	c->retrans_segs = sock_retrans_segs(sk);
	c->state = state;
	if (state == TCP_SYN_SENT)
		c->direction = DIRECTION_ACTIVE;
	err = bpf_map_update_elem(&conns, &sk, c, BPF_NOEXIST);
	if (map_has_key(err))
		return 0;
	if (err) {
		lost_add(map_full);
		return 0;
	}
	/* The socket may have closed before the entry was added. */
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE || handle_existing(seq, sk, c))
		bpf_map_delete_elem(&conns, &sk);
	return 0;
}

/* Sockets held by tasks, of all network namespaces. The first holder is the owner. */
SEC("iter/task_file")
int existing_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct conn c = {};
	struct sock *sk;

	if (!task || !file)
		return 0;
	sk = file_tcp_sock(file);
	if (!sk || !task_wanted(task))
		return 0;
	c.wanted = true;
	task_info_read(&c.owner, task);
	return conn_begin_existing(ctx->meta->seq, sk, &c);
}

/* The other sockets of this network namespace: not accepted yet, or closed by their tasks. */
SEC("iter/tcp")
int existing_socks(struct bpf_iter__tcp *ctx)
{
	const struct sock *sk = (const struct sock *)ctx->sk_common;
	struct conn c = { .owner.uid = NO_UID, .wanted = !task_filter };

	return sk ? conn_begin_existing(ctx->meta->seq, sk, &c) : 0;
}

#endif
