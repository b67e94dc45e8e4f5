// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "sock.bpf.h"

#define STATES 5 /* TCP_CA_Open to TCP_CA_Loss */

/* Only this network namespace; 0 for all. */
const volatile __u32 targ_netns = 0;
/* Histograms of the time in each state instead of a table. */
const volatile bool targ_dist = false;

struct table_key {
	struct sock_ends ends;
};

/* Nanoseconds in each state, CLOCK_MONOTONIC. */
struct table_value {
	__u64 open;
	__u64 disorder;
	__u64 cwr;
	__u64 recovery;
	__u64 loss;
	__u64 changes;
};

#define INTERVAL_END
#include "table.bpf.h"

struct hist_key {
	__u32 state;
};

#include "hist.bpf.h"

/* A connection whose state has changed during the run. */
struct conn {
	struct sock_ends ends;
	__u64 state_ns; /* when it entered the state */
	__u64 counted_ns; /* until when the time in the state is in the table */
	__u32 state;
	__u32 pad;
};

/* Accesses by the hooks are serialized by the lock of the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, const struct sock *);
	__type(value, struct conn);
} conns SEC(".maps");

static __always_inline void add_time(const struct conn *c, __u32 epoch, __u64 ns, __u64 changes)
{
	struct table_key key = { .ends = c->ends };
	struct table_value *value = table_find_in(&key, epoch);

	if (!value)
		return;
	if (c->state == TCP_CA_Open)
		table_add(value, open, ns);
	else if (c->state == TCP_CA_Disorder)
		table_add(value, disorder, ns);
	else if (c->state == TCP_CA_CWR)
		table_add(value, cwr, ns);
	else if (c->state == TCP_CA_Recovery)
		table_add(value, recovery, ns);
	else
		table_add(value, loss, ns);
	if (changes)
		table_add(value, changes, changes);
}

/* Adds the time in the state since it was last counted to the interval or intervals of that time. */
static __always_inline void count_time(struct conn *c, __u64 now_ns, __u64 changes)
{
	__u64 end = interval_end_ns, end_ns = end & ~1ULL, from_ns;
	__u32 epoch = end & 1;

	/*
	 * The reading at the end of an interval can run at the same time as a hook. If it happens
	 * between these two lines, some 10 ns, the time since from_ns is counted twice. Kernels before
	 * 5.12 have no atomic exchange.
	 */
	from_ns = c->counted_ns;
	c->counted_ns = now_ns > from_ns ? now_ns : from_ns;
	if (now_ns < end_ns) {
		add_time(c, epoch, now_ns > from_ns ? now_ns - from_ns : 0, changes);
		return;
	}
	if (from_ns < end_ns) {
		add_time(c, epoch, end_ns - from_ns, 0);
		from_ns = end_ns;
	}
	if (now_ns > from_ns || changes)
		add_time(c, !epoch, now_ns > from_ns ? now_ns - from_ns : 0, changes);
}

/* Ends the time in the state of the connection. */
static __always_inline void end_state(struct conn *c, __u64 now_ns, __u64 changes)
{
	struct hist_key key = { .state = c->state };

	if (targ_dist)
		hist_record(&key, now_ns - c->state_ns);
	else
		count_time(c, now_ns, changes);
}

static __always_inline void begin_conn(const struct sock *sk, __u32 state, __u64 now_ns)
{
	struct conn c = { .state = state, .state_ns = now_ns, .counted_ns = now_ns };

	sock_ends_read(&c.ends, sk);
	if (!ends_wanted(&c.ends) || (targ_netns && c.ends.netns != targ_netns))
		return;
	if (bpf_map_update_elem(&conns, &sk, &c, BPF_ANY))
		lost_add(map_full);
	else if (!targ_dist)
		count_time(&c, now_ns, 1);
}

/* Called before the state of the connection is set, and when a closed socket is initialized again. */
static __always_inline int handle_change(const struct sock *sk, __u8 state)
{
	const struct inet_connection_sock *icsk = (const struct inet_connection_sock *)sk;
	__u64 now_ns = bpf_ktime_get_ns();
	struct conn *c;

	if (BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) == state ||
	    BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE)
		return 0;
	c = bpf_map_lookup_elem(&conns, &sk);
	if (!c) {
		begin_conn(sk, state, now_ns);
		return 0;
	}
	end_state(c, now_ns, 1);
	c->state = state;
	c->state_ns = now_ns;
	return 0;
}

static __always_inline int handle_state(const struct sock *sk, int newstate)
{
	struct conn *c;

	if (newstate != TCP_CLOSE)
		return 0;
	c = bpf_map_lookup_elem(&conns, &sk);
	if (!c)
		return 0;
	end_state(c, bpf_ktime_get_ns(), 0);
	bpf_map_delete_elem(&conns, &sk);
	return 0;
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(change__btf, const struct sock *sk, __u8 state)
{
	return NOT_PREEMPTED(handle_change(sk, state));
}

SEC("raw_tp/tcp_cong_state_set")
int BPF_PROG(change__raw, const struct sock *sk, __u8 state)
{
	return NOT_PREEMPTED(handle_change(sk, state));
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(end__btf, const struct sock *sk, int oldstate, int newstate)
{
	return NOT_PREEMPTED(handle_state(sk, newstate));
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(end__raw, const struct sock *sk, int oldstate, int newstate)
{
	return NOT_PREEMPTED(handle_state(sk, newstate));
}

/* At the end of an interval, the time in the current state up to that end is counted. */
SEC("iter/bpf_map_elem")
int current_states(struct bpf_iter__bpf_map_elem *ctx)
{
	struct conn *c = ctx->value;

	if (ctx->key && c)
		count_time(c, interval_end_ns & ~1ULL, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
