// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "sock.bpf.h"

/* Only these addresses and this network namespace; 0 for all. */
const volatile struct in6_addr targ_laddr = {};
const volatile struct in6_addr targ_raddr = {};
const volatile __u32 targ_netns = 0;
/* Group histograms by these. */
const volatile bool by_laddr = false;
const volatile bool by_raddr = false;
/* Set if one of these options or of those in sock.bpf.h is used. */
const volatile bool want_ends = false;

struct counters {
	__u64 unmeasured; /* packets of connections without a round-trip time yet */
};

#include "counters.bpf.h"

struct hist_key {
	struct in6_addr laddr;
	struct in6_addr raddr;
};

#include "hist.bpf.h"

static __always_inline bool addr_wanted(const struct in6_addr *addr,
					const volatile struct in6_addr *wanted)
{
	const volatile __be32 *want = wanted->in6_u.u6_addr32;
	const __be32 *word = addr->in6_u.u6_addr32;

	if (!want[0] && !want[1] && !want[2] && !want[3])
		return true;
	return word[0] == want[0] && word[1] == want[1] && word[2] == want[2] && word[3] == want[3];
}

/* fill_key reports whether the connection is wanted. */
static __always_inline bool fill_key(struct hist_key *key, const struct sock *sk)
{
	struct sock_ends ends = {};

	sock_ends_read(&ends, sk);
	if (!ends_wanted(&ends) || !addr_wanted(&ends.laddr, &targ_laddr) ||
	    !addr_wanted(&ends.raddr, &targ_raddr) || (targ_netns && ends.netns != targ_netns))
		return false;
	if (by_laddr)
		key->laddr = ends.laddr;
	if (by_raddr)
		key->raddr = ends.raddr;
	return true;
}

/* The kernel keeps eight times the smoothed round-trip time, 0 if it was never measured. */
static __always_inline int handle_packet(const struct tcp_sock *tp)
{
	__u32 srtt_us = BPF_CORE_READ(tp, srtt_us);
	struct hist_key key = {};

	if (want_ends && !fill_key(&key, (const struct sock *)tp))
		return 0;
	if (srtt_us)
		hist_record(&key, (srtt_us >> 3) * 1000ULL);
	else
		counter_add(unmeasured);
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(packet__btf, const struct tcp_sock *tp)
{
	return NOT_PREEMPTED(handle_packet(tp));
}

SEC("raw_tp/tcp_probe")
int BPF_PROG(packet__raw, const struct tcp_sock *tp)
{
	return NOT_PREEMPTED(handle_packet(tp));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
