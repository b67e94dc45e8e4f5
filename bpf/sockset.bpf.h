/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SOCKSET_BPF_H
#define __SOCKSET_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "sockcall.bpf.h"
#include "task.bpf.h"

/*
 * Calls that set up an IP socket, bind and listen, when they return: system calls (the hook "call")
 * and requests of io_uring (the hook "uring", from kernel 6.11 on). The tool defines SOCK_CALL, a
 * struct sock_nr, and SOCK_URING, an IORING_OP_*, before it includes this header, and
 * handle_call().
 */
struct sock_call {
	struct task_struct *task;
	const struct sock *sk;
	__u64 arg; /* the second argument; for io_uring the request */
	__s32 ret;
	bool uring;
};

static __always_inline int handle_call(void *ctx, const struct sock_call *c);

/* The local end of a socket. */
struct local_end {
	struct in6_addr laddr;
	__u32 netns;
	__u16 lport;
	__u16 protocol; /* IPPROTO_* */
};

struct counters {
	__u64 closed; /* calls whose descriptor was closed before they returned */
};

#include "counters.bpf.h"

/* The number of a raw socket is its protocol, not a port. */
static __always_inline void local_end_read(struct local_end *end, const struct sock *sk)
{
	struct sock_ends ends = {};

	sock_ends_read(&ends, sk);
	end->laddr = ends.laddr;
	end->netns = ends.netns;
	if (BPF_CORE_READ(sk, sk_type) != SOCK_RAW)
		end->lport = ends.lport;
	end->protocol = BPF_CORE_READ(sk, sk_protocol);
}

static __always_inline bool sock_is_ip(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return family == AF_INET || family == AF_INET6;
}

static __always_inline int handle_sock_call(void *ctx, struct sock_call *c, struct file *file)
{
	if (!file) {
		if (!c->ret && task_wanted(c->task))
			counter_add(closed);
		return 0;
	}
	c->sk = file_sock(file);
	if (!c->sk || !sock_is_ip(c->sk) || !task_wanted(c->task))
		return 0;
	return handle_call(ctx, c);
}

static __always_inline int handle_sock_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret,
					    bool btf)
{
	const struct sock_nr call = SOCK_CALL;
	struct sock_call c = {};
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (!sock_call_may_be(nr, &call))
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (!sock_call_is(regs, nr, compat, &call))
		return 0;
	c.task = task_current();
	c.arg = sock_call_arg(regs, nr, 1, compat);
	c.ret = ret;
	return handle_sock_call(ctx, &c, task_file(c.task, sock_call_arg(regs, nr, 0, compat)));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call__btf, struct pt_regs *regs, long ret)
{
	return handle_sock_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(call__raw, struct pt_regs *regs, long ret)
{
	return handle_sock_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int call__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_sock_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

/* Until 6.12 (f03baece0806) a request referred to the task itself. */
struct io_kiocb___task {
	struct task_struct *task;
} __attribute__((preserve_access_index));

static __always_inline struct task_struct *uring_task(struct io_kiocb *req)
{
	struct io_kiocb___task *old = (void *)req;

	if (bpf_core_field_exists(old->task))
		return BPF_CORE_READ(old, task);
	return BPF_CORE_READ(req, tctx, task);
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring__btf, struct io_ring_ctx *ring, struct io_kiocb *req)
{
	struct sock_call c = { .uring = true };
	struct file *file;

	if (BPF_CORE_READ(req, opcode) != SOCK_URING)
		return 0;
	c.task = uring_task(req);
	c.arg = (__u64)req;
	c.ret = BPF_CORE_READ(req, cqe.res);
	file = BPF_CORE_READ(req, file);
	return c.task && file ? handle_sock_call(ctx, &c, file) : 0;
}

#endif
