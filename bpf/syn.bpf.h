/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SYN_BPF_H
#define __SYN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define TIME_UNKNOWN (~0ULL)

/*
 * Timestamps are in microseconds instead of milliseconds if the route requests it (6.7 and later).
 */
struct tcp_sock___usec_ts {
	__u8 tcp_usec_ts : 1;
} __attribute__((preserve_access_index));

static __always_inline bool sock_has_usec_ts(const struct sock *sk)
{
	const struct tcp_sock___usec_ts *tp = (const void *)sk;

	return bpf_core_field_exists(struct tcp_sock___usec_ts, tcp_usec_ts) &&
	       BPF_CORE_READ_BITFIELD_PROBED(tp, tcp_usec_ts);
}

/*
 * The time from the SYN to the last packet or timer of the socket (tcp_mstamp), or TIME_UNKNOWN.
 * The round-trip time is exact, but it begins at the SYN that was answered, which is not the first
 * one if there were several. retrans_stamp is the time of the first SYN, in milliseconds rounded
 * down, and is cleared when the SYN is acknowledged.
 */
static __always_inline __u64 sock_since_syn_ns(const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u32 rtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	__u32 syn = BPF_CORE_READ(tp, retrans_stamp);
	__u64 last_us = BPF_CORE_READ(tp, tcp_mstamp);

	if (rtt_us && (!syn || !BPF_CORE_READ(tp, total_retrans)))
		return rtt_us * 1000ULL;
	if (!syn)
		return TIME_UNKNOWN;
	if (sock_has_usec_ts(sk))
		return ((__u32)last_us - syn) * 1000ULL;
	return ((__u32)(last_us / 1000) - syn) * 1000000ULL;
}

/*
 * sock_syn_ns returns when the SYN was sent (CLOCK_BOOTTIME), for a socket that changed to
 * TCP_SYN_SENT at begin_ns and is about to leave that state. With TCP_FASTOPEN_CONNECT the SYN is
 * sent with the first data: connect() only changes the state.
 */
static __always_inline __u64 sock_syn_ns(const struct sock *sk, __u64 begin_ns, __u64 now_ns)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u64 since_last_ns, since_syn_ns, syn_ns;

	if (!BPF_CORE_READ_BITFIELD_PROBED(tp, fastopen_connect))
		return begin_ns;
	since_syn_ns = sock_since_syn_ns(sk);
	if (since_syn_ns == TIME_UNKNOWN)
		return begin_ns;
	since_last_ns = bpf_ktime_get_ns() - BPF_CORE_READ(tp, tcp_mstamp) * 1000;
	syn_ns = now_ns - since_last_ns - since_syn_ns;
	return syn_ns > begin_ns && syn_ns <= now_ns ? syn_ns : begin_ns;
}

#endif
