// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "holder.bpf.h"
#include "list.bpf.h"
#define OWNERS_MAX (1 << 18)
#include "owners.bpf.h"
#include "sock.bpf.h"
#include "task.bpf.h"

#define AF_UNIX 1
#define NO_UID (-1U)
#define UNIX_PATH_MAX 108

/* Bits of the selected protocols. */
enum protocol {
	IS_TCP = 1,
	IS_UDP = 2,
	IS_UNIX = 4,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum protocol *protocol_type __attribute__((unused));

const volatile __u32 targ_protocols = IS_TCP | IS_UDP | IS_UNIX;
const volatile bool targ_listening = false;
const volatile bool targ_established = false;
/* 4, 6 or 0 for both. */
const volatile __u8 targ_family = 0;

struct event {
	struct task_info task; /* the owner; pid 0 if there is none */
	struct sock_ends ends;
	__u64 inode;
	__u64 peer_inode; /* only AF_UNIX */
	__u64 rx_bytes;
	__u64 tx_bytes;
	__u32 backlog;
	__u32 backlog_max;
	__u32 sock_uid;
	__u32 fd;
	__u32 holders;
	__u32 path_len;
	__u16 kind; /* SOCK_STREAM, … */
	__u8 protocol; /* enum protocol */
	__u8 state;
	bool full; /* not a TIME_WAIT or request socket */
	bool is_ipv4;
	__u8 pad[2];
	char path[UNIX_PATH_MAX];
	__u32 pad2;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline __u8 sock_protocol(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	__u16 protocol = BPF_CORE_READ(sk, sk_protocol);

	if (family == AF_UNIX)
		return IS_UNIX;
	if (family != AF_INET && family != AF_INET6)
		return 0;
	return protocol == IPPROTO_TCP ? IS_TCP : protocol == IPPROTO_UDP ? IS_UDP :
									    0;
}

static __always_inline __u64 sock_inode(const struct sock *sk)
{
	void *sock = BPF_CORE_READ(sk, sk_socket);
	struct inode *inode = sock - bpf_core_field_offset(struct socket_alloc, socket) +
			      bpf_core_field_offset(struct socket_alloc, vfs_inode);

	return sock ? BPF_CORE_READ(inode, i_ino) : 0;
}

static __always_inline void read_tcp_queues(struct event *e, const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__s32 rx = BPF_CORE_READ(tp, rcv_nxt) - BPF_CORE_READ(tp, copied_seq);

	e->rx_bytes = rx > 0 ? rx : 0; /* can be negative between a FIN and its reader */
	e->tx_bytes = BPF_CORE_READ(tp, write_seq) - BPF_CORE_READ(tp, snd_una);
}

static __always_inline void read_udp_queues(struct event *e, const struct sock *sk)
{
	const struct udp_sock *up = (const struct udp_sock *)sk;

	e->rx_bytes = BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter) -
		      BPF_CORE_READ(up, forward_deficit);
	e->tx_bytes = BPF_CORE_READ(sk, sk_wmem_alloc.refs.counter) - 1;
}

static __always_inline void read_unix(struct event *e, const struct sock *sk)
{
	const struct unix_sock *u = (const struct unix_sock *)sk;
	struct unix_address *addr = BPF_CORE_READ(u, addr);
	const struct sock *peer = BPF_CORE_READ(u, peer);
	__u32 len = addr ? BPF_CORE_READ(addr, len) : 0;
	void *path = (void *)addr + bpf_core_field_offset(struct unix_address, name) +
		     offsetof(struct sockaddr_un, sun_path);

	e->tx_bytes = BPF_CORE_READ(sk, sk_wmem_alloc.refs.counter) - 1;
	if (peer)
		e->peer_inode = sock_inode(peer);
	if (len <= offsetof(struct sockaddr_un, sun_path))
		return;
	len -= offsetof(struct sockaddr_un, sun_path);
	if (len > UNIX_PATH_MAX)
		len = UNIX_PATH_MAX;
	if (!bpf_probe_read_kernel(e->path, len, path))
		e->path_len = len;
}

static __always_inline void read_full(struct event *e, const struct sock *sk)
{
	e->full = true;
	e->inode = sock_inode(sk);
	e->sock_uid = BPF_CORE_READ(sk, sk_uid.val);
	e->kind = BPF_CORE_READ(sk, sk_type);
	if (e->state == TCP_LISTEN) {
		/* A connection to an AF_UNIX listener waits as a packet in its receive queue. */
		e->backlog = e->protocol == IS_UNIX ? BPF_CORE_READ(sk, sk_receive_queue.qlen) :
						      BPF_CORE_READ(sk, sk_ack_backlog);
		e->backlog_max = BPF_CORE_READ(sk, sk_max_ack_backlog);
	}
	if (e->protocol == IS_UNIX)
		read_unix(e, sk);
	else if (e->protocol == IS_UDP)
		read_udp_queues(e, sk);
	else if (e->state != TCP_LISTEN)
		read_tcp_queues(e, sk);
}

static __always_inline bool is_wanted(const struct event *e)
{
	if (!(targ_protocols & e->protocol))
		return false;
	if (targ_family && (e->protocol == IS_UNIX || e->is_ipv4 != (targ_family == 4)))
		return false;
	if (targ_established && e->state != TCP_ESTABLISHED)
		return false;
	if (!targ_listening || e->state == TCP_LISTEN)
		return true;
	return e->protocol == IS_UDP && e->state == TCP_CLOSE && e->ends.lport;
}

/*
 * A connection in TIME_WAIT or requested by a SYN has no full socket, only struct sock_common, in
 * which skc_num is the local port.
 */
static __always_inline bool is_full_sock(__u8 state)
{
	return state != TCP_TIME_WAIT && state != TCP_NEW_SYN_RECV;
}

static __noinline long read_sock(struct event *e, const struct sock *sk)
{
	if (!e)
		return 0;
	e->state = BPF_CORE_READ(sk, __sk_common.skc_state);
	e->sock_uid = NO_UID;
	if (e->protocol != IS_UNIX) {
		sock_ends_read(&e->ends, sk);
		e->ends.lport = BPF_CORE_READ(sk, __sk_common.skc_num);
		e->is_ipv4 = addr_is_ipv4(&e->ends.laddr);
	}
	e->ends.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	if (is_full_sock(e->state))
		read_full(e, sk);
	return 0;
}

/* The socket of a task's file, if the task is wanted. */
static __always_inline struct sock *held_sock(struct task_struct *task, struct file *file)
{
	struct sock *sk;

	if (!task || !file)
		return NULL;
	sk = file_sock(file);
	if (!sk || !reports_resource(task, BPF_CORE_READ(task, files), BPF_CORE_READ(task, group_leader, files)))
		return NULL;
	return sk;
}

/* Finds the holders of sockets. */
SEC("iter/task_file")
int holders(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk = held_sock(task, ctx->file);
	__u32 fd = ctx->fd;

	if (task && sk)
		owner_add(BPF_CORE_READ(sk, sk_socket), task, fd);
	return 0;
}

static __always_inline void send_sock(struct seq_file *seq, const struct sock *sk,
				      const struct owner *owner, __u8 protocol)
{
	struct event e = { .task.uid = NO_UID, .protocol = protocol };

	if (owner) {
		if (owner->task.pid)
			e.task = owner->task;
		e.fd = owner->fd;
		e.holders = owner->holders;
	}
	e.task.time_ns = bpf_ktime_get_boot_ns();
	read_sock(&e, sk);
	if (is_wanted(&e))
		list_send(seq, &e, sizeof(e));
}

/* Exists from kernel 5.6 on. */
struct mptcp_subflow_context___node {
	struct list_head node;
	struct sock *tcp_sock;
} __attribute__((preserve_access_index));

struct mptcp_sock___conn_list {
	struct list_head conn_list;
} __attribute__((preserve_access_index));

#define SUBFLOWS_MAX 16 /* the kernel's limit is 8 per connection */

/* Sends the TCP sockets of an MPTCP socket. */
static __always_inline void send_subflows(struct seq_file *seq, const struct sock *sk,
					  const struct owner *owner)
{
	const struct mptcp_subflow_context___node *subflow;
	const struct mptcp_sock___conn_list *mptcp = (const void *)sk;
	const struct list_head *head, *node;
	const struct sock *first = mptcp_first(sk), *tcp;

	if (first)
		send_sock(seq, first, owner, IS_TCP);
	head = (const void *)mptcp + bpf_core_field_offset(struct mptcp_sock___conn_list, conn_list);
	node = BPF_CORE_READ(head, next);
	for (int i = 0; i < SUBFLOWS_MAX && node && node != head; i++) {
		subflow = (const void *)node -
			  bpf_core_field_offset(struct mptcp_subflow_context___node, node);
		tcp = BPF_CORE_READ(subflow, tcp_sock);
		if (tcp && tcp != first)
			send_sock(seq, tcp, owner, IS_TCP);
		node = BPF_CORE_READ(node, next);
	}
}

/* The sockets held by processes, of all network namespaces, each with its owner. */
SEC("iter/task_file")
int held(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct sock *sk = held_sock(task, ctx->file);
	const struct socket *sock;
	struct owner *owner;
	__u32 fd = ctx->fd;

	if (!task || !sk)
		return 0;
	sock = BPF_CORE_READ(sk, sk_socket);
	owner = bpf_map_lookup_elem(&owners, &sock);
	if (!owner || owner->task.tid != BPF_CORE_READ(task, pid) || owner->fd != fd)
		return 0;
	if (sock_is_mptcp(sk))
		send_subflows(ctx->meta->seq, sk, owner);
	else
		send_sock(ctx->meta->seq, sk, owner, sock_protocol(sk));
	return 0;
}

/* The sockets that no process held when the processes were listed. */
static __always_inline int list_others(struct seq_file *seq, const struct sock *sk,
				       __u8 protocol)
{
	const struct socket *sock = NULL;
	struct owner *owner = NULL;
	const struct sock *of_file;

	if (!sk)
		return 0;
	if (is_full_sock(BPF_CORE_READ(sk, __sk_common.skc_state)))
		sock = BPF_CORE_READ(sk, sk_socket);
	if (sock)
		owner = bpf_map_lookup_elem(&owners, &sock);
	if (owner) {
		of_file = BPF_CORE_READ(sock, sk);
		if (of_file == sk || (of_file && sock_is_mptcp(of_file)))
			return 0;
	}
	if (!task_filter || (owner && owner->task.pid))
		send_sock(seq, sk, owner, protocol);
	return 0;
}

SEC("iter/tcp")
int others_tcp(struct bpf_iter__tcp *ctx)
{
	return list_others(ctx->meta->seq, (const struct sock *)ctx->sk_common, IS_TCP);
}

SEC("iter/udp")
int others_udp(struct bpf_iter__udp *ctx)
{
	return list_others(ctx->meta->seq, (const struct sock *)ctx->udp_sk, IS_UDP);
}

SEC("iter/unix")
int others_unix(struct bpf_iter__unix *ctx)
{
	return list_others(ctx->meta->seq, (const struct sock *)ctx->unix_sk, IS_UNIX);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
