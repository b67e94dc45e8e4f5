/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SOCK_BPF_H
#define __SOCK_BPF_H

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "inode.bpf.h"

#define AF_INET 2
#define AF_INET6 10
#define PORTS_WORDS (65536 / 64)

/* The address family of the packets; both or neither for all. */
const volatile bool targ_ipv4 = false;
const volatile bool targ_ipv6 = false;
/* A bit for each excluded port. */
const volatile __u64 targ_not_lports[PORTS_WORDS] = {};
const volatile __u64 targ_not_rports[PORTS_WORDS] = {};

/* The endpoints of a connection. IPv4 addresses are IPv4-mapped. */
struct sock_ends {
	struct in6_addr laddr;
	struct in6_addr raddr;
	__u16 lport;
	__u16 rport;
	__u32 netns; /* inode of the network namespace */
};

static __always_inline bool addr_is_ipv4(const struct in6_addr *addr)
{
	const __be32 *word = addr->in6_u.u6_addr32;

	return !word[0] && !word[1] && word[2] == bpf_htonl(0xffff);
}

static __always_inline void addr_set_ipv4(struct in6_addr *addr, __be32 ipv4)
{
	__be32 *word = addr->in6_u.u6_addr32;

	word[0] = 0;
	word[1] = 0;
	word[2] = bpf_htonl(0xffff);
	word[3] = ipv4;
}

/*
 * sock_ends_read reads the addresses of a socket of either family. The local port is inet_sport,
 * because skc_num is cleared when the socket is closed.
 */
static __always_inline void sock_ends_read(struct sock_ends *ends, const struct sock *sk)
{
	const struct inet_sock *inet = (const struct inet_sock *)sk;

	if (__builtin_expect(BPF_CORE_READ(sk, __sk_common.skc_family) != AF_INET, 1)) {
		BPF_CORE_READ_INTO(&ends->laddr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&ends->raddr, sk, __sk_common.skc_v6_daddr);
	} else {
		addr_set_ipv4(&ends->laddr, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
		addr_set_ipv4(&ends->raddr, BPF_CORE_READ(sk, __sk_common.skc_daddr));
	}
	ends->lport = bpf_ntohs(BPF_CORE_READ(inet, inet_sport));
	ends->rport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	ends->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
}

static __always_inline bool port_is_excluded(__u16 port, const volatile __u64 *not_wanted)
{
	return not_wanted[port / 64] & 1ULL << port % 64;
}

static __always_inline bool family_wanted(bool ipv4)
{
	return targ_ipv4 == targ_ipv6 || ipv4 == targ_ipv4;
}

static __always_inline bool ends_wanted(const struct sock_ends *ends)
{
	return family_wanted(addr_is_ipv4(&ends->raddr)) &&
	       !port_is_excluded(ends->lport, targ_not_lports) &&
	       !port_is_excluded(ends->rport, targ_not_rports);
}

static __always_inline bool sock_is_tcp(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return (family == AF_INET || family == AF_INET6) &&
	       BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
}

/* file_sock returns the socket of a file, or NULL. */
static __always_inline struct sock *file_sock(struct file *file)
{
	struct socket *sock;

	if (inode_type(BPF_CORE_READ(file, f_inode)) != S_IFSOCK)
		return NULL;
	/* A file opened with O_PATH has no socket. */
	sock = BPF_CORE_READ(file, private_data);
	return sock ? BPF_CORE_READ(sock, sk) : NULL;
}

/* From kernel 5.6 on. */
struct mptcp_sock___first {
	struct sock *first;
} __attribute__((preserve_access_index));

static __always_inline bool sock_is_mptcp(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return bpf_core_field_exists(struct mptcp_sock___first, first) &&
	       (family == AF_INET || family == AF_INET6) &&
	       BPF_CORE_READ(sk, sk_protocol) == IPPROTO_MPTCP;
}

/* The first subflow of an MPTCP socket, or NULL after it was removed. */
static __always_inline struct sock *mptcp_first(const struct sock *sk)
{
	const struct mptcp_sock___first *mptcp = (const void *)sk;

	return BPF_CORE_READ(mptcp, first);
}

/* Returns the socket itself for TCP, the first subflow for MPTCP, and NULL for other protocols. */
static __always_inline struct sock *sock_tcp(struct sock *sk)
{
	if (!sk || sock_is_tcp(sk))
		return sk;
	if (!sock_is_mptcp(sk))
		return NULL;
	sk = mptcp_first(sk);
	return sk && sock_is_tcp(sk) ? sk : NULL;
}

/*
 * file_tcp_sock is sock_tcp() for the socket of a file. By default, Go programs listen with MPTCP.
 */
static __always_inline struct sock *file_tcp_sock(struct file *file)
{
	return sock_tcp(file_sock(file));
}

/*
 * A TCP socket that belongs to another socket, such as a subflow of MPTCP, has the struct socket of
 * that one.
 */
static __always_inline bool sock_is_subflow(const struct sock *sk)
{
	struct socket *sock = BPF_CORE_READ(sk, sk_socket);

	return sock && BPF_CORE_READ(sock, sk) != sk;
}

#endif
