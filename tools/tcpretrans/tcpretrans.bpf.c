// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "conn.bpf.h"

#define ICSK_TIME_LOSS_PROBE 5 /* include/net/inet_connection_sock.h */

enum cause {
	CAUSE_TIMEOUT = 1,
	CAUSE_FAST,
	CAUSE_SLOW_START,
	CAUSE_PROBE,
	CAUSE_NEW_PROBE,
	CAUSE_SYNACK,
};

struct event {
	struct task_info task; /* the owner; its time is the row's */
	struct sock_ends ends;
	__u32 seq; /* as on the wire */
	__u32 bytes;
	__u32 segments;
	__s32 error; /* -errno */
	__u8 tcp_state;
	__u8 cause; /* enum cause */
	__u8 pad[6];
};

/* Keeps the type in the object, for it to be compared with Go's. */
const struct event *event_type __attribute__((unused));

/* The tracepoint has a third argument, the result, and is there for failures too. */
typedef void (*btf_trace_tcp_retransmit_skb___err)(void *, const struct sock *,
						   const struct sk_buff *, int);

static __always_inline void handle_change(void *ctx, const struct sock *sk, const struct conn *c,
					  int oldstate, int newstate, __u64 now_ns)
{
}

static __always_inline long handle_existing(struct seq_file *seq, const struct sock *sk,
					    const struct conn *c)
{
	return 0;
}

/*
 * What the kernel counts as TCPTimeouts, TCPFastRetrans, TCPSlowStartRetrans and
 * TCPLossProbes. The timer clears icsk_pending before it retransmits, but for a loss
 * probe; that is only set up while nothing is known to be lost.
 */
static __always_inline enum cause retransmit_cause(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = (const struct inet_connection_sock *)sk;
	__u8 pending = BPF_CORE_READ(icsk, icsk_pending);
	__u8 ca_state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);

	if (!pending)
		return CAUSE_TIMEOUT;
	if (pending == ICSK_TIME_LOSS_PROBE && ca_state < TCP_CA_Recovery)
		return CAUSE_PROBE;
	return ca_state == TCP_CA_Loss ? CAUSE_SLOW_START : CAUSE_FAST;
}

/* The event is sent if the socket's owner and ends are wanted. */
static __always_inline void tell(void *ctx, const struct sock *owner, struct event *e)
{
	if (!ends_wanted(&e->ends) || !conn_wanted(conn_of(owner, &e->task)))
		return;
	e->task.time_ns = bpf_ktime_get_boot_ns();
	event_send(ctx, e, sizeof(*e), e->task.time_ns);
}

static __always_inline int handle_retransmit(void *ctx, const struct sock *sk,
					     const struct sk_buff *skb, int error)
{
	const struct tcp_skb_cb *cb = (void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	struct event e = {};

	sock_ends_read(&e.ends, sk);
	e.seq = BPF_CORE_READ(cb, seq);
	e.bytes = BPF_CORE_READ(skb, len);
	e.segments = BPF_CORE_READ(cb, tcp_gso_segs);
	e.error = error;
	e.tcp_state = BPF_CORE_READ(sk, __sk_common.skc_state);
	e.cause = retransmit_cause(sk);
	tell(ctx, sk, &e);
	return 0;
}

static __always_inline int retransmit_error(__u64 *ctx)
{
	return bpf_core_type_exists(btf_trace_tcp_retransmit_skb___err) ? (int)ctx[2] : 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmit__btf, const struct sock *sk, const struct sk_buff *skb)
{
	return handle_retransmit(ctx, sk, skb, retransmit_error(ctx));
}

SEC("raw_tp/tcp_retransmit_skb")
int BPF_PROG(retransmit__raw, const struct sock *sk, const struct sk_buff *skb)
{
	return handle_retransmit(ctx, sk, skb, retransmit_error(ctx));
}

/* A request has the beginning of a socket, but no inet_sport. */
static __always_inline int handle_synack(void *ctx, const struct sock *listener,
					 const struct request_sock *req)
{
	const struct tcp_request_sock *treq = (const struct tcp_request_sock *)req;
	struct event e = { .cause = CAUSE_SYNACK, .tcp_state = TCP_NEW_SYN_RECV, .segments = 1 };

	sock_ends_read(&e.ends, (const struct sock *)req);
	e.ends.lport = BPF_CORE_READ(req, __req_common.skc_num);
	e.seq = BPF_CORE_READ(treq, snt_isn);
	tell(ctx, listener, &e);
	return 0;
}

SEC("tp_btf/tcp_retransmit_synack")
int BPF_PROG(synack__btf, const struct sock *listener, const struct request_sock *req)
{
	return handle_synack(ctx, listener, req);
}

SEC("raw_tp/tcp_retransmit_synack")
int BPF_PROG(synack__raw, const struct sock *listener, const struct request_sock *req)
{
	return handle_synack(ctx, listener, req);
}

/* A loss probe sends again only where nothing new waits; then the tracepoint tells of it. */
static __always_inline int handle_probe(void *ctx, const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct event e = { .cause = CAUSE_NEW_PROBE };

	if (!BPF_CORE_READ(sk, sk_send_head))
		return 0;
	sock_ends_read(&e.ends, sk);
	e.seq = BPF_CORE_READ(tp, snd_nxt);
	e.tcp_state = BPF_CORE_READ(sk, __sk_common.skc_state);
	tell(ctx, sk, &e);
	return 0;
}

SEC("fentry/tcp_send_loss_probe")
int BPF_PROG(probe__fentry, const struct sock *sk)
{
	return handle_probe(ctx, sk);
}

SEC("kprobe/tcp_send_loss_probe")
int BPF_KPROBE(probe__kprobe, const struct sock *sk)
{
	return handle_probe(ctx, sk);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
