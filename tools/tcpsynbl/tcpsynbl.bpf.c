// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "sock.bpf.h"

#define ETH_P_IP 0x0800

/* Only this network namespace; 0 for all. */
const volatile __u32 targ_netns = 0;
const volatile bool by_port = false;

struct counters {
	__u64 full; /* handshakes that found the queue full */
};

#include "counters.bpf.h"

struct hist_key {
	__u32 backlog_max;
	__u32 port;
};

#include "hist.bpf.h"

/* sk has the queue of the listener, of which it can be a copy. */
static __always_inline int handle_handshake(const struct sock *sk, bool ipv4)
{
	__u32 backlog = BPF_CORE_READ(sk, sk_ack_backlog);
	struct hist_key key = {};
	__u16 port;

	port = BPF_CORE_READ(sk, __sk_common.skc_num);
	if (!family_wanted(ipv4) || port_is_excluded(port, targ_not_lports))
		return 0;
	if (targ_netns && BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) != targ_netns)
		return 0;
	key.backlog_max = BPF_CORE_READ(sk, sk_max_ack_backlog);
	if (by_port)
		key.port = port;
	hist_record(&key, backlog);
	if (backlog > key.backlog_max) /* as sk_acceptq_is_full() */
		counter_add(full);
	return 0;
}

/* For IPv4 on an IPv6 socket, the function for IPv6 calls that for IPv4. */
static __always_inline int handle_ipv6(const struct sock *sk, const struct sk_buff *skb)
{
	if (BPF_CORE_READ(skb, protocol) == bpf_htons(ETH_P_IP))
		return 0;
	return handle_handshake(sk, false);
}

SEC("fentry/tcp_v4_syn_recv_sock")
int BPF_PROG(handshake__fentry__ipv4, const struct sock *sk)
{
	return handle_handshake(sk, true);
}

SEC("fentry/tcp_v6_syn_recv_sock")
int BPF_PROG(handshake__fentry__ipv6, const struct sock *sk, const struct sk_buff *skb)
{
	return handle_ipv6(sk, skb);
}

SEC("kprobe/tcp_v4_syn_recv_sock")
int BPF_KPROBE(handshake__kprobe__ipv4, const struct sock *sk)
{
	return handle_handshake(sk, true);
}

SEC("kprobe/tcp_v6_syn_recv_sock")
int BPF_KPROBE(handshake__kprobe__ipv6, const struct sock *sk, const struct sk_buff *skb)
{
	return handle_ipv6(sk, skb);
}

/*
 * The functions create the socket of the connection as a copy of the listener, unless the queue is
 * full. When the copy changes its state for the first time, it still has the listener's queue,
 * family and port.
 */
static __always_inline int handle_created(const struct sock *sk, int oldstate, int newstate)
{
	if (oldstate != TCP_LISTEN || newstate != TCP_SYN_RECV || !sock_is_tcp(sk))
		return 0;
	return handle_handshake(sk, BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(created__btf, const struct sock *sk, int oldstate, int newstate)
{
	return handle_created(sk, oldstate, newstate);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(created__raw, const struct sock *sk, int oldstate, int newstate)
{
	return handle_created(sk, oldstate, newstate);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
