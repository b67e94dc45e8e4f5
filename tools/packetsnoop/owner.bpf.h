/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __OWNER_BPF_H
#define __OWNER_BPF_H

#include "packet.bpf.h"
#include <bpf/bpf_tracing.h>
#include "sockcall.bpf.h"

/*
 * The tasks that use sockets, and the sockets that packets belong to. A packet is sent and received
 * in the context of any task. A sent packet refers to its socket. The socket of a received one is
 * not known yet, so it is looked up by its addresses, which are noted when a socket is bound, and
 * when it sends.
 */

#define NO_UID (-1U) /* INVALID_UID of the kernel */
#define AF_PACKET 17
#define PACKET_OTHERHOST 3 /* include/uapi/linux/if_packet.h */

#if defined(__TARGET_ARCH_x86)
enum {
	NR_read = 0,
	NR_write = 1,
	NR_readv = 19,
	NR_writev = 20,
	NR_socket = 41,
	NR_sendto = 44,
	NR_recvfrom = 45,
	NR_sendmsg = 46,
	NR_recvmsg = 47,
	NR_bind = 49,
	NR_listen = 50,
	NR_recvmmsg = 299,
	NR_sendmmsg = 307,
	/* Calls of x32 tasks with numbers of their own, relative to the first. */
	NR_x32_first = 515,
	NR_x32_calls = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 22 | 1 << 23,
	NR_compat_socket = 359,
	NR_compat_first = 361, /* bind, and the calls up to recvmsg and shutdown */
	NR_compat_last = 372,
	NR_compat_accept_calls = 1 << (364 - 361),
	NR_compat_socketpair = -3,
};
#else
enum {
	NR_read = 63,
	NR_write = 64,
	NR_readv = 65,
	NR_writev = 66,
	NR_socket = 198,
	NR_bind = 200,
	NR_listen = 201,
	NR_sendto = 206,
	NR_recvfrom = 207,
	NR_sendmsg = 211,
	NR_recvmsg = 212,
	NR_recvmmsg = 243,
	NR_sendmmsg = 269,
	NR_x32_first = 1 << 20,
	NR_x32_calls = 0,
	NR_compat_socket = 281,
	NR_compat_first = 282,
	NR_compat_last = 297,
	NR_compat_accept_calls = 1 << (285 - 282),
	NR_compat_socketpair = 288,
};
#endif
enum {
	NR_compat_read = 3,
	NR_compat_write = 4,
	NR_compat_readv = 145,
	NR_compat_writev = 146,
	SYS_SOCKET = 1, /* include/uapi/linux/net.h */
	SYS_ACCEPT = 5,
	SYS_SOCKETPAIR = 8,
	SYS_ACCEPT4 = 18,
};

struct counters {
	__u64 owners_full; /* sockets whose task could not be stored */
};

#include "counters.bpf.h"

struct owner {
	struct task_info task;
	__u32 inode; /* of the socket's file: its address is reused */
	bool wanted; /* by the task filter */
	__u8 pad[3];
};

/* Entries of TCP sockets are deleted when the socket is closed, others are replaced when it is reused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, const struct sock *);
	__type(value, struct owner);
} owners SEC(".maps");

/* One end of a connection; without a remote end, a socket that receives from any. */
struct flow_key {
	struct in6_addr laddr;
	struct in6_addr raddr;
	__u32 netns;
	__u16 lport; /* or ID of an ICMP echo request */
	__u16 rport;
	__u8 protocol;
	__u8 pad[3];
};

struct flow {
	struct owner owner;
	const struct sock *sk;
	bool shared; /* by sockets of several processes: which one receives is not known */
	__u8 pad[7];
};

/* A flow that was evicted is noted again when it sends. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* The inode number of the socket's file, 0 if the socket has none. */
static __always_inline __u32 sock_inode(const struct sock *sk)
{
	struct socket *socket = BPF_CORE_READ(sk, sk_socket);

	return socket ? BPF_CORE_READ((struct socket_alloc *)socket, vfs_inode.i_ino) : 0;
}

static __always_inline bool addr_is_any(const struct in6_addr *a)
{
	return !a->in6_u.u6_addr32[3] && !a->in6_u.u6_addr32[1] && !a->in6_u.u6_addr32[0];
}

/* Reports whether the entry is that of a socket that exists. */
static __always_inline bool flow_is_current(const struct flow *f)
{
	return f->owner.inode && sock_inode(f->sk) == f->owner.inode;
}

/* Notes a socket that receives from any remote end. */
static __always_inline void flow_bind(const struct flow_key *key, const struct flow *f)
{
	struct flow *old = bpf_map_lookup_elem(&flows, key);

	if (old && old->sk == f->sk && old->owner.inode == f->owner.inode) {
		old->owner = f->owner;
		return;
	}
	if (old && flow_is_current(old)) {
		if (old->owner.task.pid != f->owner.task.pid)
			old->shared = true;
		return;
	}
	bpf_map_update_elem(&flows, key, f, BPF_ANY);
}

/* Notes the addresses of a socket that a task uses. */
static __noinline void flow_note(const struct sock *sk, const struct owner *o)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	struct flow f = { .owner = *o, .sk = sk };
	struct flow_key key = {};
	struct sock_ends ends = {};
	bool any;

	if (family != AF_INET && family != AF_INET6)
		return;
	key.protocol = BPF_CORE_READ(sk, sk_protocol);
	if (key.protocol != IPPROTO_TCP && key.protocol != IPPROTO_UDP && key.protocol != IPPROTO_UDPLITE)
		return;
	sock_ends_read(&ends, sk);
	if (!ends.lport)
		return;
	key.netns = ends.netns;
	key.lport = ends.lport;
	key.laddr = ends.laddr;
	key.raddr = ends.raddr;
	key.rport = ends.rport;
	if (key.protocol == IPPROTO_TCP && BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_LISTEN) {
		if (ends.rport)
			bpf_map_update_elem(&flows, &key, &f, BPF_ANY);
		return;
	}
	if (!ends.rport)
		__builtin_memset(&key.raddr, 0, sizeof(key.raddr)); /* IPv4-mapped 0 */
	flow_bind(&key, &f);
	any = !ends.rport && family == AF_INET6 && addr_is_any(&key.laddr) && !addr_is_ipv4(&key.laddr);
	if (any && !BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_ipv6only)) {
		addr_set_ipv4(&key.laddr, 0);
		flow_bind(&key, &f);
	}
}

static __always_inline bool same_task(const struct task_info *a, const struct task_info *b)
{
	return a->tid == b->tid && a->uid == b->uid && a->cgroup_id == b->cgroup_id &&
	       !__builtin_memcmp(a->comm, b->comm, sizeof(a->comm));
}

/* Notes the task that uses a socket. again is set if its addresses can have changed. */
static __noinline int owner_note(const struct sock *sk, struct owner *o, bool again)
{
	const struct owner *old = bpf_map_lookup_elem(&owners, &sk);

	if (!again && old && old->inode == o->inode && same_task(&old->task, &o->task))
		return 0;
	if (bpf_map_update_elem(&owners, &sk, o, BPF_ANY))
		counter_add(owners_full);
	flow_note(sk, o);
	return 0;
}

static __always_inline bool sock_sends_packets(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return family == AF_INET || family == AF_INET6 || family == AF_PACKET;
}

/* The packets of an MPTCP socket are those of its subflows, of which only the first is followed. */
static __always_inline const struct sock *sock_of_packets(const struct sock *sk)
{
	return sk && sock_is_mptcp(sk) ? mptcp_first(sk) : sk;
}

enum sock_use {
	USE_NONE,
	USE_DATA, /* a call that sends or receives */
	USE_ADDRESS, /* a call that can change the addresses */
	USE_NEW, /* the result is a descriptor of the socket */
};

static __always_inline enum sock_use socketcall_use(__u32 call)
{
	if (call == SYS_SOCKET || call == SYS_ACCEPT || call == SYS_ACCEPT4)
		return USE_NEW;
	if (call < SYS_ACCEPT)
		return USE_ADDRESS;
	return call == SYS_SOCKETPAIR ? USE_NONE : USE_DATA;
}

static __always_inline enum sock_use compat_use(struct pt_regs *regs, __s32 nr)
{
	switch (nr) {
	case NR_compat_socketcall:
		return socketcall_use(syscall_arg(regs, 0, true));
	case NR_compat_socket:
	case NR_compat_accept4:
		return USE_NEW;
	case NR_compat_read:
	case NR_compat_write:
	case NR_compat_readv:
	case NR_compat_writev:
		return USE_DATA;
	}
	if (nr < NR_compat_first || nr > NR_compat_last || nr == NR_compat_socketpair)
		return USE_NONE;
	return NR_compat_accept_calls >> (nr - NR_compat_first) & 1 ? USE_NEW : USE_ADDRESS;
}

static __always_inline enum sock_use native_use(__s32 nr)
{
	switch (nr) {
	case NR_read:
	case NR_write:
	case NR_readv:
	case NR_writev:
	case NR_sendto:
	case NR_recvfrom:
	case NR_sendmsg:
	case NR_recvmsg:
	case NR_recvmmsg:
	case NR_sendmmsg:
		return USE_DATA;
	case NR_bind:
	case NR_listen:
	case NR_connect:
		return USE_ADDRESS;
	case NR_socket:
	case NR_accept:
	case NR_accept4:
		return USE_NEW;
	}
	if (nr >= NR_x32_first && nr < NR_x32_first + 31 && NR_x32_calls >> (nr - NR_x32_first) & 1)
		return USE_DATA;
	return USE_NONE;
}

static __always_inline void owner_note_current(const struct sock *sk, bool again)
{
	struct owner o = {};

	sk = sock_of_packets(sk);
	if (!sk || !sock_sends_packets(sk))
		return;
	o.inode = sock_inode(sk);
	o.wanted = task_current_wanted();
	task_info_current(&o.task);
	owner_note(sk, &o, again);
}

static __always_inline int handle_call(struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	enum sock_use use;
	struct file *file;
	bool compat;
	__u32 fd;

	nr &= ~__X32_SYSCALL_BIT;
	compat = syscall_is_compat_for(regs, btf);
	use = compat ? compat_use(regs, nr) : native_use(nr);
	if (use == USE_NONE || (ret < 0 && use != USE_ADDRESS))
		return 0;
	fd = use == USE_NEW ? ret : sock_call_arg(regs, nr, 0, compat);
	file = task_file(task_current(), fd);
	if (file)
		owner_note_current(file_sock(file), use != USE_DATA);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call__btf, struct pt_regs *regs, long ret)
{
	return handle_call(regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(call__raw, struct pt_regs *regs, long ret)
{
	return handle_call(regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int call__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_call(syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

/* The address of the socket of a new or closed connection may have belonged to another one. */
static __always_inline int handle_state(const struct sock *sk, int newstate)
{
	if (newstate == TCP_CLOSE || newstate == TCP_SYN_RECV)
		bpf_map_delete_elem(&owners, &sk);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__btf, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(sk, newstate);
}

/* Sockets that exist at the start, of all network namespaces. The first holder is the owner. */
SEC("iter/task_file")
int existing_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct owner o = {};
	const struct sock *sk;

	if (!task || !file)
		return 0;
	sk = sock_of_packets(file_sock(file));
	if (!sk || !sock_sends_packets(sk) || bpf_map_lookup_elem(&owners, &sk))
		return 0;
	o.inode = sock_inode(sk);
	o.wanted = task_wanted(task);
	task_info_read(&o.task, task);
	owner_note(sk, &o, true);
	return 0;
}

/* The key of the flow that a packet belongs to. Its local end is the source or the destination. */
static __always_inline void key_of(struct flow_key *key, const struct event *e, const struct headers *h,
				   bool source)
{
	key->netns = e->netns;
	key->protocol = e->protocol;
	key->laddr = source ? e->saddr : e->daddr;
	if (e->read & READ_ICMP) {
		key->lport = h->echo_id;
		return;
	}
	key->lport = source ? e->sport : e->dport;
	key->rport = source ? e->dport : e->sport;
	key->raddr = source ? e->daddr : e->saddr;
}

/* Sets the owner, or NULL if the socket is shared. Returns false if there is no such socket. */
static __always_inline bool find_bound(const struct owner **o, const struct flow_key *key)
{
	const struct flow *f = bpf_map_lookup_elem(&flows, key);

	if (!f || !flow_is_current(f))
		return false;
	*o = f->shared ? NULL : &f->owner;
	return true;
}

/*
 * The owner of the socket that receives, in the order of the kernel: the one that is connected with
 * the remote end, the one that is bound to the address, the one that is bound to any.
 */
static __always_inline const struct owner *receiving_owner(struct flow_key *key)
{
	const struct owner *o = NULL;

	if (key->protocol != IPPROTO_TCP && find_bound(&o, key))
		return o;
	__builtin_memset(&key->raddr, 0, sizeof(key->raddr));
	key->rport = 0;
	if (find_bound(&o, key))
		return o;
	if (addr_is_ipv4(&key->laddr))
		addr_set_ipv4(&key->laddr, 0);
	else
		__builtin_memset(&key->laddr, 0, sizeof(key->laddr));
	find_bound(&o, key);
	return o;
}

/* The owner of the socket that a packet refers to, or NULL. */
static __always_inline const struct owner *sock_owner(const struct sk_buff *skb)
{
	const struct sock *sk = BPF_CORE_READ(skb, sk);
	const struct owner *o;
	__u8 state;
	__u32 inode;

	if (!sk)
		return NULL;
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (state == TCP_NEW_SYN_RECV)
		sk = BPF_CORE_READ(sk, __sk_common.skc_listener);
	else if (state == TCP_TIME_WAIT)
		return NULL;
	o = bpf_map_lookup_elem(&owners, &sk);
	if (!o)
		return NULL;
	inode = sock_inode(sk);
	/* A socket without a file was closed, and still sends. */
	return inode && inode != o->inode ? NULL : o;
}

/* Packets that a socket receives later are looked up by what it sends. */
static __always_inline void flow_learn(const struct event *e, const struct headers *h,
				       const struct sk_buff *skb, const struct owner *o)
{
	struct flow f = { .owner = *o, .sk = BPF_CORE_READ(skb, sk) };
	struct flow_key key = {};

	if (!(e->read & (READ_PORTS | READ_ICMP)))
		return;
	key_of(&key, e, h, true);
	if (e->read & READ_TCP) {
		if (e->flags & TCP_FLAG_SYN)
			bpf_map_update_elem(&flows, &key, &f, BPF_ANY);
		else
			bpf_map_update_elem(&flows, &key, &f, BPF_NOEXIST);
	} else if (e->read & READ_PORTS) {
		flow_note(f.sk, o);
	} else if (e->icmp_type == ICMP_ECHO || e->icmp_type == ICMPV6_ECHO_REQUEST) {
		flow_bind(&key, &f);
	}
}

static __always_inline const struct owner *sender_of(const struct event *e, const struct headers *h,
						     const struct sk_buff *skb)
{
	const struct owner *o = sock_owner(skb);
	struct flow_key key = {};
	const struct flow *f;

	if (o) {
		flow_learn(e, h, skb, o);
		return o;
	}
	/* Sockets that are not accepted yet, or in TIME_WAIT. */
	if (!(e->read & READ_TCP))
		return NULL;
	key_of(&key, e, h, true);
	f = bpf_map_lookup_elem(&flows, &key);
	return f ? &f->owner : NULL;
}

static __always_inline const struct owner *receiver_of(const struct event *e, const struct headers *h,
						       const struct sk_buff *skb)
{
	const struct owner *o = NULL;
	struct flow_key key = {};
	const struct flow *f;

	key_of(&key, e, h, false);
	if (e->read & READ_TCP && !((e->flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN)) {
		f = bpf_map_lookup_elem(&flows, &key);
		o = f ? &f->owner : NULL;
	} else if (e->read & READ_PORTS) {
		o = receiving_owner(&key);
	} else if (e->read & READ_ICMP &&
		   (e->icmp_type == ICMP_ECHOREPLY || e->icmp_type == ICMPV6_ECHO_REPLY)) {
		find_bound(&o, &key);
	}
	/*
	 * A packet for another host, as on a port of a bridge, can refer to the socket of its sender, in
	 * another network namespace of this machine.
	 */
	if (!o && BPF_CORE_READ_BITFIELD_PROBED(skb, pkt_type) == PACKET_OTHERHOST)
		o = sock_owner(skb);
	return o;
}

#endif
