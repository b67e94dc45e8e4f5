/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __DNS_BPF_H
#define __DNS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "iovec.bpf.h"
#include "sockcall.bpf.h"

/*
 * DNS answers that tasks receive from UDP sockets with read, recvfrom and recvmsg. They are read
 * from the memory of the task when the system call returns: in the kernel they can be fragmented,
 * or inaccessible to programs.
 */

#define DNS_PORT 53
#define DNS_HEADER 12

enum { /* include/uapi/linux/net.h */
	SYS_RECV = 10,
	SYS_RECVFROM = 12,
	SYS_RECVMSG = 17,
};

#if defined(__TARGET_ARCH_x86)
enum {
	NR_read = 0,
	NR_recvfrom = 45,
	NR_recvmsg = 47,
	NR_compat_recvfrom = 371,
	NR_compat_recvmsg = 372,
};
#else
enum {
	NR_read = 63,
	NR_recvfrom = 207,
	NR_recvmsg = 212,
	NR_compat_recvfrom = 292,
	NR_compat_recvmsg = 297,
};
#endif
#define NR_compat_read 3

/* A received message and the address of its sender, in the memory of the task. */
struct dns_received {
	struct user_data message;
	__u64 sender; /* struct sockaddr, or 0 */
};

enum dns_call {
	DNS_CALL_NONE,
	DNS_CALL_READ,
	DNS_CALL_RECVFROM,
	DNS_CALL_RECVMSG
};

static __always_inline enum dns_call dns_call(struct pt_regs *regs, __s32 nr, bool compat)
{
	if (compat && nr == NR_compat_socketcall) {
		__u32 call = syscall_arg(regs, 0, true);

		return call == SYS_RECV	    ? DNS_CALL_READ :
		       call == SYS_RECVFROM ? DNS_CALL_RECVFROM :
		       call == SYS_RECVMSG  ? DNS_CALL_RECVMSG :
					      DNS_CALL_NONE;
	}
	if (nr == (compat ? NR_compat_read : NR_read))
		return DNS_CALL_READ;
	if (nr == (compat ? NR_compat_recvfrom : NR_recvfrom))
		return DNS_CALL_RECVFROM;
	if (nr == (compat ? NR_compat_recvmsg : NR_recvmsg))
		return DNS_CALL_RECVMSG;
	return DNS_CALL_NONE;
}

/*
 * Reports whether a message is from the DNS port. The port is that of the peer if the socket is
 * connected, otherwise that of the sender, which is known if the task requested its address.
 */
static __always_inline bool is_from_dns(const struct sock *sk, __u64 sender)
{
	struct sockaddr_in from = {};
	__be16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP)
		return false;
	if (port || !sender)
		return port == bpf_htons(DNS_PORT);
	bpf_probe_read_user(&from, sizeof(from), (void *)sender);
	return from.sin_port == bpf_htons(DNS_PORT); /* at the same offset in struct sockaddr_in6 */
}

/*
 * dns_find finds the DNS answer that a system call returns, and reports whether there is one. nr is
 * without the x32 bit.
 */
static __always_inline bool dns_find(struct dns_received *r, struct pt_regs *regs, __s32 nr,
				     __s32 ret, bool compat)
{
	enum dns_call call = dns_call(regs, nr, compat);
	struct file *file;
	__u64 message;
	struct sock *sk;

	if (call == DNS_CALL_NONE || ret < DNS_HEADER)
		return false;
	file = task_file(task_current(), sock_call_arg(regs, nr, 0, compat));
	sk = file ? file_sock(file) : NULL;
	if (!sk)
		return false;
	message = sock_call_arg(regs, nr, 1, compat);
	r->message = (struct user_data){ .base = message, .size = ret };
	if (call == DNS_CALL_RECVFROM)
		r->sender = sock_call_arg(regs, nr, 4, compat);
	else if (call == DNS_CALL_RECVMSG)
		r->sender = user_msghdr_read(&r->message, (void *)message, ret, compat);
	return is_from_dns(sk, r->sender);
}

#endif
