/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __ACCEPT_BPF_H
#define __ACCEPT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "sockcall.bpf.h"

#define SYS_ACCEPT 5 /* include/uapi/linux/net.h */
#define SYS_ACCEPT4 18

enum accept_run {
	ACCEPT_ONLY,
	ACCEPT_FIRST,
	ACCEPT_SECOND, /* in the second program, in case the kernel skipped the first */
};

/*
 * The hook "accept": a task accepts a connection from a listener. The tool, or a header that it
 * includes, defines handle_accept(), which is called in the context of that task. listener may be
 * NULL.
 */
static __always_inline void handle_accept(void *ctx, const struct sock *listener,
					  const struct sock *sk, enum accept_run run);

/* From 6.10 on (92ef0fd55ac8), three of the four arguments of inet_csk_accept() are in a struct. */
static __always_inline int handle_accept_return(__u64 *ctx, enum accept_run run)
{
	const struct sock *sk;

	if (bpf_core_type_exists(struct proto_accept_arg)) {
		sk = (const struct sock *)ctx[2];
		barrier_var(sk); /* see block_arg() */
	} else {
		sk = (const struct sock *)ctx[4];
	}
	if (sk)
		handle_accept(ctx, (const struct sock *)ctx[0], sk, run);
	return 0;
}

SEC("fexit/inet_csk_accept")
int accept__fentry(__u64 *ctx)
{
	return handle_accept_return(ctx, ACCEPT_FIRST);
}

SEC("fexit/inet_csk_accept")
int accept__fentry__again(__u64 *ctx)
{
	return handle_accept_return(ctx, ACCEPT_SECOND);
}

static __always_inline bool is_compat_accept(struct pt_regs *regs, __s32 nr)
{
	__u64 call;

	if (nr != NR_compat_socketcall)
		return nr == NR_compat_accept || nr == NR_compat_accept4;
	call = syscall_arg(regs, 0, true);
	return call == SYS_ACCEPT || call == SYS_ACCEPT4;
}

/* The new descriptor refers to the accepted socket, unless another thread has closed it already. */
static __always_inline int handle_accept_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret,
					      bool btf)
{
	struct sock *sk;
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (nr != NR_accept && nr != NR_accept4 && nr != NR_compat_accept &&
	    nr != NR_compat_accept4 && nr != NR_compat_socketcall)
		return 0;
	if ((__s32)ret < 0)
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (compat ? !is_compat_accept(regs, nr) : nr != NR_accept && nr != NR_accept4)
		return 0;
	sk = task_tcp_sock(ret);
	if (sk)
		handle_accept(ctx, task_tcp_sock(sock_call_arg(regs, nr, 0, compat)), sk, ACCEPT_ONLY);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(accept__btf, struct pt_regs *regs, long ret)
{
	return handle_accept_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(accept__raw, struct pt_regs *regs, long ret)
{
	return handle_accept_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int accept__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_accept_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

#endif
