// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"
#include "dns.bpf.h"
#include "iovec.bpf.h"

#define MSG_PEEK 2
#define VECTOR_MAX 8 /* messages of a sendmmsg or recvmmsg that are read */

enum { /* include/uapi/linux/net.h */
	SYS_SEND = 9,
	SYS_SENDTO = 11,
	SYS_SENDMSG = 16,
	SYS_RECVMMSG = 19,
	SYS_SENDMMSG = 20,
};

#if defined(__TARGET_ARCH_x86)
enum {
	NR_write = 1,
	NR_readv = 19,
	NR_writev = 20,
	NR_sendto = 44,
	NR_sendmsg = 46,
	NR_recvmmsg = 299,
	NR_sendmmsg = 307,
	NR_x32_readv = 515,
	NR_x32_writev = 516,
	NR_x32_recvfrom = 517,
	NR_x32_sendmsg = 518,
	NR_x32_recvmsg = 519,
	NR_x32_recvmmsg = 537,
	NR_x32_sendmmsg = 538,
	NR_compat_recvmmsg = 337,
	NR_compat_sendmmsg = 345,
	NR_compat_sendto = 369,
	NR_compat_sendmsg = 370,
};
#else
enum {
	NR_write = 64,
	NR_readv = 65,
	NR_writev = 66,
	NR_sendto = 206,
	NR_sendmsg = 211,
	NR_recvmmsg = 243,
	NR_sendmmsg = 269,
	NR_x32_readv = -11,
	NR_x32_writev = -12,
	NR_x32_recvfrom = -13,
	NR_x32_sendmsg = -14,
	NR_x32_recvmsg = -15,
	NR_x32_recvmmsg = -16,
	NR_x32_sendmmsg = -17,
	NR_compat_sendto = 290,
	NR_compat_sendmsg = 296,
	NR_compat_recvmmsg = 365,
	NR_compat_sendmmsg = 374,
};
#endif
enum {
	NR_compat_write = 4,
	NR_compat_readv = 145,
	NR_compat_writev = 146,
	NR_compat_recvmmsg_time64 = 417,
};

/* How the arguments of a call refer to messages. */
enum form {
	FORM_NONE,
	FORM_BUFFER, /* a buffer, no address */
	FORM_ADDRESSED, /* a buffer, the address is argument 4 */
	FORM_VECTOR, /* buffers */
	FORM_MSGHDR,
	FORM_MSGHDRS, /* the result is the number of messages */
};

struct call {
	enum form form;
	bool is_send;
	bool is_32bit; /* layout of structures */
};

struct event {
	struct task_info task;
	__u64 sock;
	struct sock_ends ends; /* the remote end is the server */
	__u32 message_len;
	bool is_send;
	bool is_tcp;
	__u8 pad[2];
};

struct scratch {
	struct event event;
	struct user_bytes message;
};

#include "scratch.bpf.h"

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline enum form socketcall_form(__u32 call, bool *is_send)
{
	*is_send = call == SYS_SEND || call == SYS_SENDTO || call == SYS_SENDMSG || call == SYS_SENDMMSG;
	switch (call) {
	case SYS_SEND:
	case SYS_RECV:
		return FORM_BUFFER;
	case SYS_SENDTO:
	case SYS_RECVFROM:
		return FORM_ADDRESSED;
	case SYS_SENDMSG:
	case SYS_RECVMSG:
		return FORM_MSGHDR;
	case SYS_SENDMMSG:
	case SYS_RECVMMSG:
		return FORM_MSGHDRS;
	}
	return FORM_NONE;
}

static __always_inline enum form compat_form(__s32 nr, bool *is_send)
{
	*is_send = nr == NR_compat_write || nr == NR_compat_writev || nr == NR_compat_sendto ||
		   nr == NR_compat_sendmsg || nr == NR_compat_sendmmsg;
	if (nr == NR_compat_write || nr == NR_compat_read)
		return FORM_BUFFER;
	if (nr == NR_compat_writev || nr == NR_compat_readv)
		return FORM_VECTOR;
	if (nr == NR_compat_sendto || nr == NR_compat_recvfrom)
		return FORM_ADDRESSED;
	if (nr == NR_compat_sendmsg || nr == NR_compat_recvmsg)
		return FORM_MSGHDR;
	if (nr == NR_compat_sendmmsg || nr == NR_compat_recvmmsg || nr == NR_compat_recvmmsg_time64)
		return FORM_MSGHDRS;
	return FORM_NONE;
}

static __always_inline enum form native_form(__s32 nr, bool *is_send)
{
	*is_send = nr == NR_write || nr == NR_writev || nr == NR_sendto || nr == NR_sendmsg ||
		   nr == NR_sendmmsg;
	if (nr == NR_write || nr == NR_read)
		return FORM_BUFFER;
	if (nr == NR_writev || nr == NR_readv)
		return FORM_VECTOR;
	if (nr == NR_sendto || nr == NR_recvfrom)
		return FORM_ADDRESSED;
	if (nr == NR_sendmsg || nr == NR_recvmsg)
		return FORM_MSGHDR;
	if (nr == NR_sendmmsg || nr == NR_recvmmsg)
		return FORM_MSGHDRS;
	return FORM_NONE;
}

/* The calls of x32 tasks that have numbers of their own, because structures have another layout. */
static __always_inline enum form x32_form(__s32 nr, bool *is_send)
{
	*is_send = nr == NR_x32_writev || nr == NR_x32_sendmsg || nr == NR_x32_sendmmsg;
	if (nr == NR_x32_writev || nr == NR_x32_readv)
		return FORM_VECTOR;
	if (nr == NR_x32_recvfrom)
		return FORM_ADDRESSED;
	if (nr == NR_x32_sendmsg || nr == NR_x32_recvmsg)
		return FORM_MSGHDR;
	if (nr == NR_x32_sendmmsg || nr == NR_x32_recvmmsg)
		return FORM_MSGHDRS;
	return FORM_NONE;
}

/* nr is without the x32 bit. */
static __always_inline struct call call_of(struct pt_regs *regs, __s32 nr, bool compat)
{
	struct call c = { .is_32bit = compat };

	if (compat && nr == NR_compat_socketcall) {
		c.form = socketcall_form(syscall_arg(regs, 0, true), &c.is_send);
	} else if (compat) {
		c.form = compat_form(nr, &c.is_send);
	} else {
		c.form = native_form(nr, &c.is_send);
		if (c.form == FORM_NONE) {
			c.form = x32_form(nr, &c.is_send);
			c.is_32bit = c.form != FORM_NONE;
		}
	}
	return c;
}

/* A cheap check before the ABI and the descriptor are read. */
static __always_inline bool may_transfer(__s32 nr)
{
	bool is_send;

	return nr == NR_compat_socketcall || native_form(nr, &is_send) || compat_form(nr, &is_send) ||
	       x32_form(nr, &is_send);
}

/* The port of a struct sockaddr_in or sockaddr_in6, which is at the same offset. */
static __always_inline void read_server(struct sock_ends *ends, const void *addr)
{
	struct sockaddr_in6 to = {};
	struct sockaddr_in *to4 = (struct sockaddr_in *)&to;

	bpf_probe_read_user(&to, sizeof(*to4), addr);
	ends->rport = bpf_ntohs(to4->sin_port);
	if (to4->sin_family == AF_INET) {
		addr_set_ipv4(&ends->raddr, to4->sin_addr.s_addr);
	} else if (to4->sin_family == AF_INET6) {
		bpf_probe_read_user(&to, sizeof(to), addr);
		ends->raddr = to.sin6_addr;
	} else {
		ends->rport = 0;
	}
}

/* Not inlined, because it is called in a loop. sender is a struct sockaddr of the task, or 0. */
static __noinline int send_message(void *ctx, const struct sock *sk, const struct user_data *m,
				   __u64 sender, bool is_send)
{
	struct scratch *s;
	int size;

	s = scratch_begin();
	if (!s)
		return 0;
	sock_ends_read(&s->event.ends, sk);
	/* A received address is not filled in for TCP; it is that of the peer for a connected socket. */
	if (sender && !sock_is_tcp(sk) && (is_send || !s->event.ends.rport))
		read_server(&s->event.ends, (const void *)sender);
	if (!ends_wanted(&s->event.ends))
		goto out;
	size = user_data_read(&s->message, m);
	if (size < 0) {
		lost_add(unobserved);
		goto out;
	}
	task_info_current(&s->event.task);
	s->event.message_len = size;
	s->event.sock = (__u64)sk;
	s->event.is_send = is_send;
	s->event.is_tcp = BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
	barrier_var(size); /* old verifiers lose the bound when the register is spilled */
	if (size >= 0 && size <= IOVEC_BYTES)
		event_send(ctx, s, sizeof(s->event) + size, s->event.task.time_ns);
out:
	scratch_end();
	return 0;
}

static __always_inline void handle_msghdr(void *ctx, const struct sock *sk, const struct call *c,
					  const void *addr, __u32 size)
{
	struct user_data m;
	__u64 name;

	name = user_msghdr_read(&m, addr, size, c->is_32bit);
	send_message(ctx, sk, &m, name, c->is_send);
}

/* struct mmsghdr is a struct msghdr of 28 or 56 bytes, and the size of the message. */
static __always_inline void handle_msghdrs(void *ctx, const struct sock *sk, const struct call *c,
					   __u64 addr, __u32 nr)
{
	const __u32 head = c->is_32bit ? 28 : 56, step = c->is_32bit ? 32 : 64;

	for (__u32 i = 0; i < VECTOR_MAX; i++) {
		__u32 size = 0;

		if (i >= nr)
			break;
		bpf_probe_read_user(&size, sizeof(size), (const void *)(addr + i * step + head));
		handle_msghdr(ctx, sk, c, (const void *)(addr + i * step), size);
	}
	if (nr > VECTOR_MAX)
		lost_add_n(map_full, nr - VECTOR_MAX);
}

/* The socket of a descriptor, if it can be that of a client or server of DNS. */
static __always_inline const struct sock *task_dns_sock(__u32 fd)
{
	struct file *file = task_file(task_current(), fd);
	const struct sock *sk = file ? file_sock(file) : NULL;
	__u16 family;

	if (!sk)
		return NULL;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return NULL;
	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP && !sock_is_tcp(sk))
		return NULL;
	/* Connected to another port. */
	if (BPF_CORE_READ(sk, __sk_common.skc_dport) &&
	    port_is_excluded(bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport)), targ_not_rports))
		return NULL;
	return sk;
}

/* The data of a read with MSG_PEEK is read again. */
static __always_inline bool is_peek(struct pt_regs *regs, __s32 nr, const struct call *c, bool compat)
{
	__u64 flags = 0;

	if (c->is_send)
		return false;
	if (c->form == FORM_MSGHDR)
		flags = sock_call_arg(regs, nr, 2, compat);
	else if (c->form == FORM_ADDRESSED || c->form == FORM_MSGHDRS ||
		 (c->form == FORM_BUFFER && compat && nr == NR_compat_socketcall))
		flags = sock_call_arg(regs, nr, 3, compat);
	return flags & MSG_PEEK;
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret, bool btf)
{
	struct user_data m = { .size = ret };
	const struct sock *sk;
	__u64 sender = 0;
	struct call c;
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (ret <= 0 || !may_transfer(nr) || !task_current_wanted())
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	c = call_of(regs, nr, compat);
	if (c.form == FORM_NONE || is_peek(regs, nr, &c, compat))
		return 0;
	sk = task_dns_sock(sock_call_arg(regs, nr, 0, compat));
	if (!sk)
		return 0;
	m.base = sock_call_arg(regs, nr, 1, compat);
	if (c.form == FORM_MSGHDRS) {
		handle_msghdrs(ctx, sk, &c, m.base, ret);
		return 0;
	}
	if (c.form == FORM_MSGHDR) {
		handle_msghdr(ctx, sk, &c, (const void *)m.base, ret);
		return 0;
	}
	m.is_32bit = c.is_32bit;
	if (c.form == FORM_VECTOR)
		m.count = sock_call_arg(regs, nr, 2, compat);
	else if (m.size > sock_call_arg(regs, nr, 2, compat)) /* with MSG_TRUNC */
		m.size = sock_call_arg(regs, nr, 2, compat);
	m.is_vector = c.form == FORM_VECTOR;
	if (c.form == FORM_ADDRESSED)
		sender = sock_call_arg(regs, nr, 4, compat);
	send_message(ctx, sk, &m, sender, c.is_send);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(transfer__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(transfer__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int transfer__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
