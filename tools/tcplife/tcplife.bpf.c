// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "conn.bpf.h"
#include "list.bpf.h"

enum row_state {
	ROW_CLOSED = 1,
	ROW_EXISTING,
	ROW_OPEN,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum row_state *row_state_type __attribute__((unused));

struct event {
	struct task_info task; /* the owner; its time is that of the row */
	__u64 tx_bytes;
	__u64 rx_bytes;
	__u64 duration_ns; /* 0 if the start was not observed */
	__u64 established_ns; /* 0 if it was not observed or not reached */
	struct sock_ends ends;
	__s32 error; /* -errno */
	__u32 retransmits;
	__u32 rtt_us;
	__u8 state; /* enum row_state */
	__u8 tcp_state;
	__u8 direction;
	bool partial;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* In these states this end has closed: a FIN was sent or is queued after the data. */
static __always_inline bool state_has_fin(__u8 state)
{
	return state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSING ||
	       state == TCP_LAST_ACK;
}

/*
 * Payload that was sent at least once: the sequence numbers that are acknowledged or in flight,
 * without SYN and FIN. bytes_acked includes the SYN of the connecting end, because that is
 * acknowledged first; the socket of the other end is created after its SYN. bytes_sent -
 * bytes_retrans includes neither, but counts a segment again that a full queue of this host
 * rejected; if the direction is unknown it still shows whether there was a SYN.
 */
static __always_inline __u64 tx_bytes(const struct tcp_sock *tp, __u8 direction, __u8 state)
{
	__u32 snd_nxt = BPF_CORE_READ(tp, snd_nxt);
	__u64 n = BPF_CORE_READ(tp, bytes_acked) + (__u32)(snd_nxt - BPF_CORE_READ(tp, snd_una));
	__u64 sent;

	if (n && state_has_fin(state) && snd_nxt == BPF_CORE_READ(tp, write_seq))
		n--;
	if (n && direction == DIRECTION_ACTIVE)
		n--;
	if (direction == DIRECTION_UNKNOWN) {
		sent = BPF_CORE_READ(tp, bytes_sent) - BPF_CORE_READ(tp, bytes_retrans);
		if (sent + 1 == n)
			n = sent;
	}
	return n;
}

/* Payload that was received in order; bytes_received includes the FIN, which sets SOCK_DONE. */
static __always_inline __u64 rx_bytes(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	__u64 n = BPF_CORE_READ(tp, bytes_received);
	bool fin = BPF_CORE_READ(sk, __sk_common.skc_flags) &
		   1UL << bpf_core_enum_value(enum sock_flags, SOCK_DONE);

	return n && fin ? n - 1 : n;
}

/* fill_event reports whether the connection is wanted; tcp_state is its last state. */
static __noinline bool fill_event(struct event *e, const struct sock *sk,
				  const struct conn *c, enum row_state state, __u8 tcp_state)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u64 now_ns = bpf_ktime_get_boot_ns();

	if (!c->wanted)
		return false;
	sock_ends_read(&e->ends, sk);
	if (!ends_wanted(&e->ends))
		return false;
	e->task = c->owner;
	e->task.time_ns = now_ns;
	if (c->start_ns)
		e->duration_ns = now_ns - c->start_ns;
	if (c->established_ns)
		e->established_ns = now_ns - c->established_ns;
	e->partial = !c->start_ns;
	e->tx_bytes = tx_bytes(tp, c->direction, tcp_state);
	e->rx_bytes = rx_bytes(tp);
	e->retransmits = BPF_CORE_READ(tp, total_retrans);
	e->rtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	e->error = -BPF_CORE_READ(sk, sk_err);
	e->state = state;
	e->tcp_state = tcp_state;
	e->direction = c->direction;
	return true;
}

static __always_inline void handle_change(void *ctx, const struct sock *sk, const struct conn *c,
					  int oldstate, int newstate, __u64 now_ns)
{
	struct event e = {};

	if (newstate != TCP_CLOSE || oldstate == TCP_LISTEN)
		return;
	if (fill_event(&e, sk, c, ROW_CLOSED, oldstate))
		event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

static __always_inline long handle_existing(struct seq_file *seq, const struct sock *sk,
					    const struct conn *c)
{
	struct event e = {};

	if (c->state == TCP_LISTEN || !fill_event(&e, sk, c, ROW_EXISTING, c->state))
		return 0;
	return list_send(seq, &e, sizeof(e));
}

/* Once nothing is attached, a socket can be freed, or belong to another connection. */
SEC("iter/bpf_map_elem")
int open_conns(struct bpf_iter__bpf_map_elem *ctx)
{
	const struct sock **key = ctx->key;
	const struct conn *c = ctx->value;
	const struct sock *sk;
	struct event e = {};
	__u8 state;

	if (!key || !c)
		return 0;
	sk = *key;
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (!state_is_open(state) || !state_is_open(c->state))
		return 0;
	if (c->hash && c->hash != BPF_CORE_READ(sk, __sk_common.skc_hash))
		return 0;
	if (fill_event(&e, sk, c, ROW_OPEN, state))
		list_send(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
