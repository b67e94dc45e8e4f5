/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __DNS_BPF_H
#define __DNS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "sockcall.bpf.h"

/*
 * Answers of DNS, as tasks get them by read, recvfrom and recvmsg from UDP sockets: in
 * the task's memory, when the system call returns. In the kernel they need not be in one
 * piece, nor where a program can read them.
 */

#define DNS_PORT 53
#define DNS_HEADER 12
#define DNS_MAX 1024 /* what is longer is cut */

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

/* What a call has received: where it lies, and who sent it, in the task's memory. */
struct dns_received {
	__u64 message;
	__u64 sender; /* struct sockaddr, or 0 */
	__u32 size;
};

/* struct msghdr of tasks, as far as it is of interest, and that of 32-bit tasks. */
struct dns_msghdr {
	__u64 name;
	__u64 name_len;
	__u64 iov;
};

struct dns_msghdr32 {
	__u32 name;
	__u32 name_len;
	__u32 iov;
};

/* What was received lies in the first of the places, or its beginning does. */
static __always_inline void received_msg(struct dns_received *r, const void *addr)
{
	struct dns_msghdr msg = {};
	__u64 iov[2] = {};

	bpf_probe_read_user(&msg, sizeof(msg), addr);
	bpf_probe_read_user(&iov, sizeof(iov), (void *)msg.iov);
	r->sender = msg.name;
	r->message = iov[0];
	r->size = r->size < iov[1] ? r->size : iov[1];
}

static __always_inline void received_msg32(struct dns_received *r, const void *addr)
{
	struct dns_msghdr32 msg = {};
	__u32 iov[2] = {};

	bpf_probe_read_user(&msg, sizeof(msg), addr);
	bpf_probe_read_user(&iov, sizeof(iov), (void *)(__u64)msg.iov);
	r->sender = msg.name;
	r->message = iov[0];
	r->size = r->size < iov[1] ? r->size : iov[1];
}

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

/* Whether what a socket has received is from the port of DNS: it is connected, or the task asked. */
static __always_inline bool is_from_dns(const struct sock *sk, __u64 sender)
{
	struct sockaddr_in from = {};
	__be16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP)
		return false;
	if (port || !sender)
		return port == bpf_htons(DNS_PORT);
	bpf_probe_read_user(&from, sizeof(from), (void *)sender);
	return from.sin_port == bpf_htons(DNS_PORT); /* IPv6 has it at the same place */
}

/*
 * dns_find finds the answer that a system call returns with, and tells whether there is
 * one. nr is without the bit of x32.
 */
static __always_inline bool dns_find(struct dns_received *r, struct pt_regs *regs, __s32 nr,
				     __s32 ret, bool compat)
{
	enum dns_call call = dns_call(regs, nr, compat);
	struct file *file;
	struct sock *sk;

	if (call == DNS_CALL_NONE || ret < DNS_HEADER)
		return false;
	file = task_file(task_current(), sock_call_arg(regs, nr, 0, compat));
	sk = file ? file_sock(file) : NULL;
	if (!sk)
		return false;
	r->size = ret;
	r->message = sock_call_arg(regs, nr, 1, compat);
	if (call == DNS_CALL_RECVFROM)
		r->sender = sock_call_arg(regs, nr, 4, compat);
	else if (call == DNS_CALL_RECVMSG && compat)
		received_msg32(r, (void *)r->message);
	else if (call == DNS_CALL_RECVMSG)
		received_msg(r, (void *)r->message);
	return is_from_dns(sk, r->sender);
}

/* dns_read reads it into message[DNS_MAX], and returns the size. */
static __always_inline __u32 dns_read(char *message, const struct dns_received *r)
{
	__u32 size = r->size;

	if (size > DNS_MAX)
		size = DNS_MAX;
	return bpf_probe_read_user(message, size, (void *)r->message) ? 0 : size;
}

#endif
