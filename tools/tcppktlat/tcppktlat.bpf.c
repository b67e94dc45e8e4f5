// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "sock.bpf.h"
#include "task.bpf.h"

#define SEGMENTS_MAX 64 /* a power of two */

/* Only segments that waited at least this time. */
const volatile __u64 targ_min_ns = 0;

struct counters {
	__u64 crowded; /* segments received while SEGMENTS_MAX others were unread */
	__u64 unread; /* segments that were not read before the socket was destroyed */
};

#include "counters.bpf.h"

struct segment {
	__u64 time_ns; /* of its receipt, CLOCK_BOOTTIME */
	__u32 seq;
	__u32 pad;
};

/* The unread segments of a socket, in the order of receipt. Entry i is ring[i % SEGMENTS_MAX]. */
struct unread {
	__u32 head;
	__u32 tail;
	struct segment ring[SEGMENTS_MAX];
};

/* Initial value of an entry, in .rodata because of the 512-byte stack limit. */
const struct unread nothing_unread = {};

/* The lock of the socket serializes accesses to its entry. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, const struct sock *);
	__type(value, struct unread);
} sockets SEC(".maps");

struct event {
	struct task_info task; /* the reader */
	__u64 latency_ns;
	struct sock_ends ends;
	__u32 segments;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline bool is_before(__u32 seq, __u32 other)
{
	return (__s32)(seq - other) < 0;
}

static __always_inline struct unread *find_unread(const struct sock *sk)
{
	struct unread *u = bpf_map_lookup_elem(&sockets, &sk);

	if (u)
		return u;
	bpf_map_update_elem(&sockets, &sk, &nothing_unread, BPF_NOEXIST);
	u = bpf_map_lookup_elem(&sockets, &sk);
	if (!u)
		lost_add(map_full);
	return u;
}

static __always_inline bool sock_wanted(struct sock_ends *ends, const struct sock *sk)
{
	sock_ends_read(ends, sk);
	return ends_wanted(ends);
}

/* Segments without data, or with data that was received before, are ignored. */
static __always_inline int handle_packet(const struct sock *sk, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)skb + bpf_core_field_offset(struct sk_buff, cb);
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u32 seq = BPF_CORE_READ(cb, seq), end = BPF_CORE_READ(cb, end_seq);
	struct sock_ends ends = {};
	struct segment *segment;
	struct unread *u;

	if (BPF_CORE_READ(cb, tcp_flags) & 1 /* FIN */)
		end--;
	if (seq == end || !is_before(BPF_CORE_READ(tp, rcv_nxt), end) || !sock_wanted(&ends, sk))
		return 0;
	u = find_unread(sk);
	if (!u)
		return 0;
	if (u->tail - u->head >= SEGMENTS_MAX) {
		counter_add(crowded);
		return 0;
	}
	segment = &u->ring[u->tail % SEGMENTS_MAX];
	segment->time_ns = bpf_ktime_get_boot_ns();
	segment->seq = seq;
	u->tail++;
	return 0;
}

/* Removes the segments of which data was read, and returns their number. */
static __always_inline __u32 take_read(struct unread *u, __u32 copied_seq, __u64 *first_ns)
{
	__u32 n = 0;

	for (int i = 0; i < SEGMENTS_MAX; i++) {
		struct segment *segment = &u->ring[u->head % SEGMENTS_MAX];

		if (u->head == u->tail || !is_before(segment->seq, copied_seq))
			break;
		if (!n)
			*first_ns = segment->time_ns;
		u->head++;
		n++;
	}
	return n;
}

/* The task reads, and the kernel has just advanced copied_seq, unless it only peeks. */
static __always_inline int handle_read(void *ctx, const struct sock *sk)
{
	struct unread *u = bpf_map_lookup_elem(&sockets, &sk);
	struct event e = {};
	__u64 first_ns = 0;

	if (!u || u->head == u->tail)
		return 0;
	e.segments = take_read(u, BPF_CORE_READ((const struct tcp_sock *)sk, copied_seq), &first_ns);
	if (!e.segments || !task_current_wanted())
		return 0;
	task_info_current(&e.task);
	e.latency_ns = e.task.time_ns - first_ns;
	if (e.latency_ns < targ_min_ns || !sock_wanted(&e.ends, sk))
		return 0;
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

static __always_inline int handle_destroy(const struct sock *sk)
{
	struct unread *u = bpf_map_lookup_elem(&sockets, &sk);

	if (!u)
		return 0;
	if (u->tail != u->head)
		counter_add_n(unread, u->tail - u->head);
	bpf_map_delete_elem(&sockets, &sk);
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(packet__btf, const struct sock *sk, const struct sk_buff *skb)
{
	return NOT_PREEMPTED(handle_packet(sk, skb));
}

SEC("raw_tp/tcp_probe")
int BPF_PROG(packet__raw, const struct sock *sk, const struct sk_buff *skb)
{
	return NOT_PREEMPTED(handle_packet(sk, skb));
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(read__btf, const struct sock *sk)
{
	return NOT_PREEMPTED(handle_read(ctx, sk));
}

SEC("raw_tp/tcp_rcv_space_adjust")
int BPF_PROG(read__raw, const struct sock *sk)
{
	return NOT_PREEMPTED(handle_read(ctx, sk));
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(destroy__btf, const struct sock *sk)
{
	return NOT_PREEMPTED(handle_destroy(sk));
}

SEC("raw_tp/tcp_destroy_sock")
int BPF_PROG(destroy__raw, const struct sock *sk)
{
	return NOT_PREEMPTED(handle_destroy(sk));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
