/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SOCKCALL_BPF_H
#define __SOCKCALL_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "task.bpf.h"
#include "syscall.bpf.h"
#include "path.bpf.h"
#include "sock.bpf.h"

/*
 * sock_call_arg returns argument n of a system call for sockets. The arguments of socketcall are in
 * the memory of the task, with 32 bits each.
 */
static __always_inline __u64 sock_call_arg(struct pt_regs *regs, __s32 nr, int n, bool compat)
{
	__u32 arg = -1;
	__u64 args;

	if (!compat || nr != NR_compat_socketcall)
		return syscall_arg(regs, n, compat);
	args = syscall_arg(regs, 1, true);
	bpf_probe_read_user(&arg, sizeof(arg), (void *)(args + n * sizeof(arg)));
	return arg;
}

/* A system call for sockets: its numbers, and that of its socketcall (include/uapi/linux/net.h). */
struct sock_nr {
	__s32 native;
	__s32 compat;
	__u32 socketcall;
};

/* Reports whether this is the call. nr is without the x32 bit. */
static __always_inline bool sock_call_is(struct pt_regs *regs, __s32 nr, bool compat,
					 const struct sock_nr *call)
{
	if (!compat)
		return nr == call->native;
	if (nr == NR_compat_socketcall)
		return (__u32)syscall_arg(regs, 0, true) == call->socketcall;
	return nr == call->compat;
}

/* The same without reading registers: whether it can be the call. */
static __always_inline bool sock_call_may_be(__s32 nr, const struct sock_nr *call)
{
	return nr == call->native || nr == call->compat || nr == NR_compat_socketcall;
}

/*
 * sockaddr_read reads a struct sockaddr of either family in the memory of the task. Returns false if
 * the memory cannot be read, or has an address of another family. bind accepts AF_UNSPEC for IPv4.
 */
static __always_inline bool sockaddr_read(struct in6_addr *addr, __u16 *port, const void *from)
{
	struct sockaddr_in6 to = {};
	struct sockaddr_in *to4 = (struct sockaddr_in *)&to;

	/* One that is shorter than the larger type can end with its page. */
	if (bpf_probe_read_user(&to, sizeof(to), from) && bpf_probe_read_user(to4, sizeof(*to4), from))
		return false;
	*port = bpf_ntohs(to4->sin_port); /* at the same offset in struct sockaddr_in6 */
	if (to.sin6_family == AF_INET6)
		*addr = to.sin6_addr;
	else
		addr_set_ipv4(addr, to4->sin_addr.s_addr);
	return to.sin6_family == AF_INET6 || to.sin6_family == AF_INET || !to.sin6_family;
}

/* The TCP socket that a descriptor of the current task refers to, or NULL. */
static __always_inline struct sock *task_tcp_sock(__u32 fd)
{
	struct file *file = task_file(task_current(), fd);

	return file ? file_tcp_sock(file) : NULL;
}

#endif
