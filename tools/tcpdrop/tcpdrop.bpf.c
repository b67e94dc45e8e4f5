// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "conn.bpf.h"
#include "stack.bpf.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define TCPHDR_FIN 1 /* include/net/tcp.h */
#define TCPHDR_SYN 2
#define IP_OFFSET 0x1fff /* fragments other than the first have no TCP header */

/* Inode number of the selected network namespace, or 0. */
const volatile __u32 targ_netns = 0;
const volatile bool want_stack = false;
/* Include packets that are freed as dropped although no data is lost. */
const volatile bool targ_all = false;

struct counters {
	__u64 no_loss; /* packets that were freed as dropped, without a loss of data */
};

#include "counters.bpf.h"

/* Source and destination of a packet. IPv4 addresses are IPv4-mapped. */
struct packet {
	struct in6_addr saddr;
	struct in6_addr daddr;
	__u16 sport;
	__u16 dport;
	__u32 netns;
	__u32 seq;
	__u32 ack;
};

struct event {
	struct task_info task; /* the owner of the socket; its time is that of the row */
	__u64 location;
	struct packet packet;
	__u32 reason; /* 0 if the kernel does not provide it */
	__u32 stack_len;
	__u8 tcp_state; /* 0 without a socket */
	__u8 flags; /* as in the TCP header */
	__u8 pad[6];
	char stack[STACK_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3); /* for the first program, the second, and tcp_drop */
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

/* Packets that the first of two programs has reported, and the second will see. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, const struct sk_buff *);
	__type(value, __u8);
} reported SEC(".maps");

/* From 6.11 on the tracepoint has the socket that received the packet (c53795d48ee8). */
typedef void (*btf_trace_kfree_skb___rx_sk)(void *, struct sk_buff *, void *,
					    enum skb_drop_reason, struct sock *);

static __always_inline void handle_change(void *ctx, const struct sock *sk, const struct conn *c,
					  int oldstate, int newstate, __u64 now_ns)
{
}

static __always_inline long handle_existing(struct seq_file *seq, const struct sock *sk,
					    const struct conn *c)
{
	return 0;
}

/* Reads the addresses, and returns the offset of the TCP header, or 0 if there is none. */
static __always_inline __u32 read_ipv4(struct packet *p, const void *head, __u32 at)
{
	struct iphdr ip = {};

	bpf_probe_read_kernel(&ip, sizeof(ip), head + at);
	if (ip.protocol != IPPROTO_TCP || ip.frag_off & bpf_htons(IP_OFFSET))
		return 0;
	addr_set_ipv4(&p->saddr, ip.saddr);
	addr_set_ipv4(&p->daddr, ip.daddr);
	return at + ip.ihl * 4;
}

static __always_inline __u32 read_ipv6(struct packet *p, const void *head, __u32 at)
{
	struct ipv6hdr ip = {};

	bpf_probe_read_kernel(&ip, sizeof(ip), head + at);
	if (ip.nexthdr != IPPROTO_TCP)
		return 0;
	p->saddr = ip.saddr;
	p->daddr = ip.daddr;
	return at + sizeof(ip);
}

/* Once IP has processed a packet, its headers are in the linear part. */
static __always_inline bool read_packet(struct event *e, const struct sk_buff *skb)
{
	const void *head = BPF_CORE_READ(skb, head);
	__u32 at = BPF_CORE_READ(skb, network_header);
	__be16 protocol = BPF_CORE_READ(skb, protocol);
	struct tcphdr tcp = {};

	if (protocol == bpf_htons(ETH_P_IP) && family_wanted(true))
		at = read_ipv4(&e->packet, head, at);
	else if (protocol == bpf_htons(ETH_P_IPV6) && family_wanted(false))
		at = read_ipv6(&e->packet, head, at);
	else
		return false;
	if (!at || at + sizeof(tcp) > BPF_CORE_READ(skb, tail))
		return false;
	bpf_probe_read_kernel(&tcp, sizeof(tcp), head + at);
	e->packet.sport = bpf_ntohs(tcp.source);
	e->packet.dport = bpf_ntohs(tcp.dest);
	e->packet.seq = bpf_ntohl(tcp.seq);
	e->packet.ack = bpf_ntohl(tcp.ack_seq);
	e->flags = ((__u8 *)&tcp)[13];
	return true;
}

/* Read from the socket: packets that wait for their task have no device. */
static __always_inline void read_sock(struct event *e, const struct sk_buff *skb,
				      const struct sock *sk)
{
	if (!sk) {
		e->packet.netns = BPF_CORE_READ(skb, dev, nd_net.net, ns.inum);
		return;
	}
	e->packet.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	e->tcp_state = BPF_CORE_READ(sk, __sk_common.skc_state);
}

/*
 * Raw and packet sockets drop copies of packets, which are not lost for TCP. Sockets in the two
 * states TIME_WAIT and NEW_SYN_RECV contain only the first members of a socket.
 */
static __always_inline bool sock_is_other(const struct sock *sk)
{
	__u8 state = BPF_CORE_READ(sk, __sk_common.skc_state);
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV)
		return false;
	return (family != AF_INET && family != AF_INET6) || BPF_CORE_READ(sk, sk_type) != SOCK_STREAM;
}

/* The owner of a request is that of its listener. */
static __always_inline const struct sock *owned_sock(const struct sock *sk)
{
	const struct request_sock *req = (const struct request_sock *)sk;

	if (sk && BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_NEW_SYN_RECV)
		return BPF_CORE_READ(req, __req_common.skc_listener);
	return sk;
}

/* Lets one of two programs report a packet: the second if the first did not. */
static __always_inline bool is_reported(const struct sk_buff *skb, bool second)
{
	const __u8 yes = 1;

	if (second)
		return !bpf_map_delete_elem(&reported, &skb);
	return bpf_map_update_elem(&reported, &skb, &yes, BPF_ANY);
}

static __always_inline bool read_drop(struct event *e, const struct sk_buff *skb,
				      const struct sock *sk)
{
	__builtin_memset(e, 0, offsetof(struct event, stack));
	if (!read_packet(e, skb) || (sk && sock_is_other(sk)))
		return false;
	read_sock(e, skb, sk);
	if (targ_netns && e->packet.netns != targ_netns)
		return false;
	return conn_wanted(conn_find(owned_sock(sk), &e->task));
}

/*
 * The receive queue of a socket that ends is purged. The packets in it were received. If a packet
 * has no data that the task has not read, nothing is lost: usually it is the FIN, kept for a task
 * that has already closed the socket. The reason is QUEUE_PURGE; older kernels have no reason.
 */
static __always_inline bool is_no_loss(const struct sk_buff *skb, const struct sock *sk)
{
	const struct tcp_skb_cb *cb = (void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u32 seq, end_seq;
	__u8 flags;

	if (!sk || BPF_CORE_READ(skb, sk) != sk ||
	    BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_CLOSE)
		return false;
	flags = BPF_CORE_READ(cb, tcp_flags);
	seq = BPF_CORE_READ(cb, seq) + !!(flags & TCPHDR_SYN);
	end_seq = BPF_CORE_READ(cb, end_seq) - (flags & TCPHDR_FIN);
	return seq == end_seq || (__s32)(end_seq - BPF_CORE_READ(tp, copied_seq)) <= 0;
}

/* Counts a packet without loss, and reports whether to omit it. */
static __always_inline bool is_omitted(const struct sk_buff *skb, const struct sock *sk)
{
	if (!is_no_loss(skb, sk))
		return false;
	counter_add(no_loss);
	return !targ_all;
}

static __always_inline void send_drop(void *ctx, struct event *e, __u64 location, __u32 reason)
{
	__u32 len = 0;

	if (want_stack)
		len = stack_read(ctx, e->stack);
	e->task.time_ns = bpf_ktime_get_boot_ns();
	e->location = location;
	e->reason = reason;
	e->stack_len = len;
	event_send(ctx, e, offsetof(struct event, stack) + len, e->task.time_ns);
}

/*
 * The kernel skips a program that is already running on the same CPU, such as when a softirq
 * interrupts it, so each program exists twice.
 */
static __always_inline int handle_free(__u64 *ctx, __u32 second)
{
	const struct sk_buff *skb = (const struct sk_buff *)ctx[0];
	const struct sock *sk = NULL;
	struct event *e = bpf_map_lookup_elem(&scratch, &second);
	__u32 reason = 0;

	/* 5.17 added the reason (c504e5c2f964). */
	if (bpf_core_type_exists(enum skb_drop_reason))
		reason = ctx[2];
	if (bpf_core_type_exists(btf_trace_kfree_skb___rx_sk))
		sk = (const struct sock *)ctx[3];
	if (!sk)
		sk = BPF_CORE_READ(skb, sk);
	if (e && read_drop(e, skb, sk) && !is_reported(skb, second) && !is_omitted(skb, sk))
		send_drop(ctx, e, ctx[1], reason);
	return 0;
}

SEC("tp_btf/kfree_skb")
int drop__btf(__u64 *ctx)
{
	return handle_free(ctx, 0);
}

SEC("tp_btf/kfree_skb")
int drop__btf__again(__u64 *ctx)
{
	return handle_free(ctx, 1);
}

SEC("raw_tp/kfree_skb")
int drop__raw(__u64 *ctx)
{
	return handle_free(ctx, 0);
}

SEC("raw_tp/kfree_skb")
int drop__raw__again(__u64 *ctx)
{
	return handle_free(ctx, 1);
}

/*
 * Before 5.17 tcp_drop frees packets without the tracepoint. On kernels with reasons it does not,
 * or does not exist (8fbf195798b5).
 */
static __always_inline int handle_tcp_drop(void *ctx, const struct sock *sk,
					   const struct sk_buff *skb)
{
	__u32 slot = 2;
	struct event *e;

	if (bpf_core_type_exists(enum skb_drop_reason))
		return 0;
	e = bpf_map_lookup_elem(&scratch, &slot);
	if (e && read_drop(e, skb, sk) && !is_omitted(skb, sk))
		send_drop(ctx, e, 0, 0);
	return 0;
}

SEC("fentry/tcp_drop")
int BPF_PROG(input__fentry, const struct sock *sk, const struct sk_buff *skb)
{
	return handle_tcp_drop(ctx, sk, skb);
}

SEC("kprobe/tcp_drop")
int BPF_KPROBE(input__kprobe, const struct sock *sk, const struct sk_buff *skb)
{
	return handle_tcp_drop(ctx, sk, skb);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
