/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __TCPBYTES_BPF_H
#define __TCPBYTES_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"
#include "sock.bpf.h"

/*
 * The hooks "send", "recv" and others: a task sends or receives data over TCP or MPTCP. The tool
 * defines count(), which is called in the context of that task.
 */

#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000

/* sk is a TCP socket, or an MPTCP socket, which has the addresses of its first subflow. */
static __always_inline void count(const struct sock *sk, __s32 bytes, const bool is_send);

static __always_inline int handle(const struct sock *sk, __s32 bytes, const bool is_send)
{
	preempt_off();
	count(sk, bytes, is_send);
	preempt_on();
	return 0;
}

/*
 * For the TCP functions: they cover all data sent and received, including sendfile and splice.
 * MPTCP calls tcp_cleanup_rbuf() for its subflows with arbitrary numbers of bytes.
 */
static __always_inline int handle_tcp(const struct sock *sk, __s32 bytes, const bool is_send)
{
	return sock_is_subflow(sk) ? 0 : handle(sk, bytes, is_send);
}

SEC("fexit/tcp_sendmsg")
int BPF_PROG(send__fentry, struct sock *sk, struct msghdr *msg, size_t size, int ret)
{
	return handle_tcp(sk, ret, true);
}

/*
 * tcp_cleanup_rbuf() is called whenever data was taken from the socket, by tcp_recvmsg(), splice and
 * others. But tcp_recvmsg() calls it also while it waits for more, with what it has so far, and
 * setsockopt() calls it for TCP_QUICKACK as for one byte. So these functions are observed too.
 */
enum inside {
	OUTSIDE,
	IN_RECVMSG,
	IN_SETSOCKOPT,
};

/* By thread. An entry is kept from one call to the next, which saves allocation and deletion. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, __u32);
} insides SEC(".maps");

static __always_inline int enter(__u32 inside)
{
	__u32 tid = bpf_get_current_pid_tgid(), *is;

	if (!observing)
		return 0;
	is = bpf_map_lookup_elem(&insides, &tid);
	if (is)
		*is = inside;
	else if (bpf_map_update_elem(&insides, &tid, &inside, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline __u32 *inside(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&insides, &tid);
}

/* Returns whether the entry to the function was observed. */
static __always_inline bool leave(__u32 expected)
{
	__u32 *is = inside();

	if (!is || *is != expected)
		return false;
	*is = OUTSIDE;
	return true;
}

/* A program can miss the return of setsockopt(), so not more than its byte is left out. */
static __always_inline int handle_cleanup(const struct sock *sk, int copied)
{
	__u32 *is = inside();

	if (is && (*is == IN_RECVMSG || (*is == IN_SETSOCKOPT && copied == 1)))
		return 0;
	return handle_tcp(sk, copied, false);
}

/*
 * The fourth argument of four or five or, until 5.19 (ec095263a965), the fifth of six. The number
 * of arguments is available from 5.17 on.
 */
static __always_inline int recvmsg_flags(__u64 *ctx)
{
	__u64 flags = 0;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_func_arg_cnt)) {
		flags = ctx[4];
		/*
		 * Otherwise the compiler merges both loads into one at an address that the verifier
		 * rejects.
		 */
		barrier_var(flags);
		return flags;
	}
	bpf_get_func_arg(ctx, bpf_get_func_arg_cnt(ctx) == 6 ? 4 : 3, &flags);
	return flags;
}

/* The result, with the same arguments. */
static __always_inline __s32 recvmsg_ret(__u64 *ctx)
{
	__u64 ret = 0;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_func_ret)) {
		ret = ctx[6];
		barrier_var(ret); /* as in recvmsg_flags() */
		return ret;
	}
	bpf_get_func_ret(ctx, &ret);
	return ret;
}

SEC("fentry/tcp_recvmsg")
int recv__fentry__enter(void *ctx)
{
	return enter(IN_RECVMSG);
}

SEC("fexit/tcp_recvmsg")
int recv__fentry__leave(__u64 *ctx)
{
	if (!leave(IN_RECVMSG) || recvmsg_flags(ctx) & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	return handle_tcp((const struct sock *)ctx[0], recvmsg_ret(ctx), false);
}

/*
 * The hook "option" is one of its own: before 6.1 fentry does not support the arguments of
 * tcp_setsockopt(), so that it is traced with kprobes. There this value of the enum does not exist,
 * so that the programs are not supported.
 */
#define FENTRY_SUPPORTS_STRUCTS bpf_core_enum_value(enum bpf_func_id, BPF_FUNC_user_ringbuf_drain)

SEC("fentry/tcp_setsockopt")
int option__fentry__enter(void *ctx)
{
	return FENTRY_SUPPORTS_STRUCTS ? enter(IN_SETSOCKOPT) : 0;
}

SEC("fexit/tcp_setsockopt")
int option__fentry__leave(void *ctx)
{
	if (FENTRY_SUPPORTS_STRUCTS)
		leave(IN_SETSOCKOPT);
	return 0;
}

SEC("fentry/tcp_cleanup_rbuf")
int BPF_PROG(recv__fentry__copied, struct sock *sk, int copied)
{
	return handle_cleanup(sk, copied);
}

/* Data sent by sendfile before 6.5 (1d7e4538a546). */
SEC("fexit/tcp_sendpage")
int BPF_PROG(sendpage__fentry, struct sock *sk, struct page *page, int offset, size_t size,
	     int flags, int ret)
{
	return handle_tcp(sk, ret, true);
}

/*
 * MPTCP has its own functions. Whether they are traced is known before the tracepoint of the same
 * call, which is hit after they return.
 */
bool mptcp_is_traced;

static __always_inline int handle_mptcp(const struct sock *sk, __s32 ret, const bool is_send)
{
	mptcp_is_traced = true;
	return handle(sk, ret, is_send);
}

SEC("fexit/mptcp_sendmsg")
int BPF_PROG(mptcp_send__fentry, struct sock *sk, struct msghdr *msg, size_t size, int ret)
{
	return handle_mptcp(sk, ret, true);
}

SEC("fexit/mptcp_recvmsg")
int mptcp_recv__fentry(__u64 *ctx)
{
	const bool is_data = !(recvmsg_flags(ctx) & (MSG_PEEK | MSG_ERRQUEUE));

	return handle_mptcp((const struct sock *)ctx[0], is_data ? recvmsg_ret(ctx) : 0, false);
}

/* These exist from 6.3 on (6e6eda44b939), for sockets of all protocols. */
static __always_inline int handle_length(const struct sock *sk, int ret, int flags,
					 const bool is_send)
{
	if (!is_send && flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	if (sock_is_tcp(sk) || (sock_is_mptcp(sk) && !mptcp_is_traced))
		return handle(sk, ret, is_send);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(send__btf, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, true);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(recv__btf, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, false);
}

SEC("raw_tp/sock_send_length")
int BPF_PROG(send__raw, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, true);
}

SEC("raw_tp/sock_recv_length")
int BPF_PROG(recv__raw, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, false);
}

/* The call of a thread, until it returns. */
struct call {
	const struct sock *sk;
	int flags;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

static __always_inline int begin_call(const struct sock *sk, int flags)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct call call = { .sk = sk, .flags = flags };

	if (bpf_map_update_elem(&calls, &tid, &call, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/* Returns false if the entry was lost, or the call transferred no data. */
static __always_inline bool end_call(struct call *call)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct call *begun = bpf_map_lookup_elem(&calls, &tid);

	if (!begun) {
		lost_add(unobserved);
		return false;
	}
	*call = *begun;
	bpf_map_delete_elem(&calls, &tid);
	return !(call->flags & (MSG_PEEK | MSG_ERRQUEUE));
}

SEC("kprobe/tcp_sendmsg")
int BPF_KPROBE(send__kprobe__enter, struct sock *sk)
{
	return begin_call(sk, 0);
}

SEC("kretprobe/tcp_sendmsg")
int BPF_KRETPROBE(send__kprobe__exit, int ret)
{
	struct call call;

	return end_call(&call) ? handle_tcp(call.sk, ret, true) : 0;
}

/*
 * tcp_recvmsg() is not observed here: the kernel does not report all returns if many threads wait in
 * a function.
 */
SEC("kprobe/tcp_cleanup_rbuf")
int BPF_KPROBE(recv__kprobe, struct sock *sk, int copied)
{
	return handle_cleanup(sk, copied);
}

SEC("kprobe/tcp_setsockopt")
int option__kprobe__enter(void *ctx)
{
	return enter(IN_SETSOCKOPT);
}

SEC("kretprobe/tcp_setsockopt")
int option__kprobe__exit(void *ctx)
{
	leave(IN_SETSOCKOPT);
	return 0;
}

SEC("kprobe/mptcp_sendmsg")
int BPF_KPROBE(mptcp_send__kprobe__enter, struct sock *sk)
{
	return begin_call(sk, 0);
}

SEC("kretprobe/mptcp_sendmsg")
int BPF_KRETPROBE(mptcp_send__kprobe__exit, int ret)
{
	struct call call;

	return end_call(&call) ? handle_mptcp(call.sk, ret, true) : 0;
}

/*
 * The flags are the fourth argument, followed by an address; until 5.19 (ec095263a965) there was
 * another number before them.
 */
SEC("kprobe/mptcp_recvmsg")
int BPF_KPROBE(mptcp_recv__kprobe__enter, struct sock *sk, struct msghdr *msg, size_t len,
	       __u64 fourth, __u64 fifth)
{
	return begin_call(sk, fifth >> 32 ? fourth : fifth);
}

SEC("kretprobe/mptcp_recvmsg")
int BPF_KRETPROBE(mptcp_recv__kprobe__exit, int ret)
{
	struct call call;

	return end_call(&call) ? handle_mptcp(call.sk, ret, false) : 0;
}

#endif
