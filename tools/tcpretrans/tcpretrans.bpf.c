// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "conn.bpf.h"

#define EAGAIN 11
#define ENOMEM 12
#define EBUSY 16
#define EINVAL 22
#define ENOBUFS 105
#define EHOSTUNREACH 113

#define ICSK_TIME_LOSS_PROBE 5 /* include/net/inet_connection_sock.h */

/* Also report retransmissions that the kernel abandoned before sending anything. */
const volatile bool targ_unsent = false;

struct counters {
	__u64 unsent; /* retransmissions that the kernel abandoned before sending anything */
};

#include "counters.bpf.h"

enum cause {
	CAUSE_TIMEOUT = 1,
	CAUSE_FAST,
	CAUSE_SLOW_START,
	CAUSE_PROBE,
	CAUSE_NEW_PROBE,
	CAUSE_SYNACK,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum cause *cause_type __attribute__((unused));

struct event {
	struct task_info task; /* the owner; its time is that of the row */
	struct sock_ends ends;
	__u32 seq; /* as on the wire */
	__u32 bytes;
	__u32 segments; /* as counted by the kernel; 0 if nothing was sent */
	__s32 error; /* -errno */
	__u8 tcp_state;
	__u8 cause; /* enum cause */
	__u8 pad[6];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/*
 * From 6.17 on (ad892e912b84) the tracepoint is also hit for segments that could not be
 * retransmitted, and has the error as its third argument. Before, it is hit only for successful
 * retransmissions.
 */
typedef void (*btf_trace_tcp_retransmit_skb___err)(void *, const struct sock *,
						   const struct sk_buff *, int);

#define HAS_ERROR bpf_core_type_exists(btf_trace_tcp_retransmit_skb___err)

/* Segments that were retransmitted without a hit of the tracepoint. */
static __always_inline void count_unobserved(const struct sock *sk, const struct conn *c,
					     __u32 segments)
{
	struct sock_ends ends = {};

	if (!segments || !c->wanted)
		return;
	sock_ends_read(&ends, sk);
	if (ends_wanted(&ends))
		lost_add_n(unobserved, segments);
}

static __always_inline void handle_change(void *ctx, const struct sock *sk, const struct conn *c,
					  int oldstate, int newstate, __u64 now_ns)
{
	if (newstate == TCP_CLOSE)
		count_unobserved(sk, c, sock_retrans_segs(sk) - c->retrans_segs);
}

static __always_inline long handle_existing(struct seq_file *seq, const struct sock *sk,
					    const struct conn *c)
{
	return 0;
}

/*
 * The causes that the kernel counts as TCPTimeouts, TCPFastRetrans, TCPSlowStartRetrans and
 * TCPLossProbes. The timer clears icsk_pending before it retransmits, except for a loss probe,
 * which is only armed while no loss is known.
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

static __always_inline void report(void *ctx, const struct conn *c, struct event *e)
{
	if (!ends_wanted(&e->ends) || !conn_wanted(c))
		return;
	e->task.time_ns = bpf_ktime_get_boot_ns();
	event_send(ctx, e, sizeof(*e), e->task.time_ns);
}

/*
 * Reports whether the kernel has counted the segments (RetransSegs, tcp_sock.total_retrans). It
 * does so before it passes them to IP, whose errors come later. For a socket without an entry the
 * error decides: these errors occur before, but IP can return EHOSTUNREACH too.
 */
static __always_inline bool was_counted(const struct conn *c, __u32 total, const struct event *e)
{
	if (c)
		return total - c->retrans_segs >= e->segments;
	return e->error != -EBUSY && e->error != -EAGAIN && e->error != -ENOMEM &&
	       e->error != -EINVAL && e->error != -EHOSTUNREACH;
}

/* Returns false for a retransmission that the kernel abandoned before sending anything. */
static __always_inline bool count_segments(const struct sock *sk, struct conn *c, struct event *e)
{
	__u32 total = sock_retrans_segs(sk);

	if (!was_counted(c, total, e)) {
		e->segments = 0;
		return false;
	}
	if (!c)
		return true;
	count_unobserved(sk, c, total - c->retrans_segs - e->segments);
	c->retrans_segs = total;
	return true;
}

static __always_inline int handle_retransmit(void *ctx, const struct sock *sk,
					     const struct sk_buff *skb, int error)
{
	const struct tcp_skb_cb *cb = (void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	struct event e = {};
	struct conn *c;

	sock_ends_read(&e.ends, sk);
	e.seq = BPF_CORE_READ(cb, seq);
	e.bytes = BPF_CORE_READ(skb, len);
	e.segments = BPF_CORE_READ(cb, tcp_gso_segs);
	/* A full queue of the network device returns NET_XMIT_DROP, which is 1. */
	e.error = error > 0 ? -ENOBUFS : error;
	e.tcp_state = BPF_CORE_READ(sk, __sk_common.skc_state);
	e.cause = retransmit_cause(sk);
	c = conn_find(sk, &e.task);
	if (!count_segments(sk, c, &e)) {
		if (ends_wanted(&e.ends) && conn_wanted(c))
			counter_add(unsent);
		if (!targ_unsent)
			return 0;
	}
	report(ctx, c, &e);
	return 0;
}

static __always_inline int retransmit_error(__u64 *ctx)
{
	return HAS_ERROR ? (int)ctx[2] : 0;
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

/*
 * A request has the first members of a socket, but no inet_sport. With TCP Fast Open the socket
 * exists already, and its total_retrans also counts SYN/ACKs.
 */
static __always_inline int handle_synack(void *ctx, const struct sock *listener,
					 const struct request_sock *req)
{
	const struct tcp_request_sock *treq = (const struct tcp_request_sock *)req;
	struct event e = { .cause = CAUSE_SYNACK, .tcp_state = TCP_NEW_SYN_RECV, .segments = 1 };
	struct conn *c = conn_find(listener, &e.task);

	sock_ends_read(&e.ends, (const struct sock *)req);
	e.ends.lport = BPF_CORE_READ(req, __req_common.skc_num);
	e.seq = BPF_CORE_READ(treq, snt_isn);
	if (c)
		c->retrans_segs = sock_retrans_segs(listener);
	report(ctx, c, &e);
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

/* A tail loss probe that sends new data is not a retransmission: the tracepoint is not hit. */
static __always_inline int handle_probe(void *ctx, const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct event e = { .cause = CAUSE_NEW_PROBE };

	if (!BPF_CORE_READ(sk, sk_send_head))
		return 0;
	sock_ends_read(&e.ends, sk);
	e.seq = BPF_CORE_READ(tp, snd_nxt);
	e.tcp_state = BPF_CORE_READ(sk, __sk_common.skc_state);
	report(ctx, conn_find(sk, &e.task), &e);
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
