// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "dns.bpf.h"
#include "event.bpf.h"
#include "sockcall.bpf.h"
#include "task.bpf.h"

#define AF_UNIX 1
#define DATA_MAX 4096

#if defined(__TARGET_ARCH_x86)
enum {
	NR_readv = 19
};
#else
enum {
	NR_readv = 65
};
#endif
#define NR_compat_readv 145

/* Show at most this number of bytes of each message. */
const volatile __u32 targ_max_bytes = 256;

struct event {
	struct task_info task;
	__u64 bytes;
	__u64 socket_inode;
	__u32 fd;
	__u32 data_len;
	char data[DATA_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

static __always_inline bool is_readv(__s32 nr, bool compat)
{
	return nr == (compat ? NR_compat_readv : NR_readv);
}

/* A cheap check before the ABI is read. */
static __always_inline bool call_is_possible(__s32 nr)
{
	return nr == NR_read || nr == NR_readv || nr == NR_recvfrom || nr == NR_recvmsg ||
	       nr == NR_compat_read || nr == NR_compat_readv || nr == NR_compat_recvfrom ||
	       nr == NR_compat_recvmsg || nr == NR_compat_socketcall;
}

static __always_inline void read_vector(struct dns_received *r, __u64 at, bool compat)
{
	__u64 iov[2] = {};
	__u32 iov32[2] = {};

	if (compat) {
		bpf_probe_read_user(&iov32, sizeof(iov32), (void *)at);
		iov[0] = iov32[0];
		iov[1] = iov32[1];
	} else {
		bpf_probe_read_user(&iov, sizeof(iov), (void *)at);
	}
	r->message = iov[0];
	r->size = r->size < iov[1] ? r->size : iov[1];
}

/* Finds the first buffer of the call, as far as it was filled. Returns false for other calls. */
static __always_inline bool find_buffer(struct dns_received *r, struct pt_regs *regs, __s32 nr,
					bool compat)
{
	enum dns_call call = dns_call(regs, nr, compat);
	__u64 at = sock_call_arg(regs, nr, 1, compat), size;

	if (is_readv(nr, compat)) {
		read_vector(r, at, compat);
		return true;
	}
	if (call == DNS_CALL_RECVMSG) {
		if (compat)
			read_msghdr32(r, (void *)at);
		else
			read_msghdr(r, (void *)at);
		return true;
	}
	/* With MSG_TRUNC the result can be larger than the buffer. */
	size = sock_call_arg(regs, nr, 2, compat);
	r->message = at;
	r->size = r->size < size ? r->size : size;
	return call != DNS_CALL_NONE;
}

static __always_inline void send_data(void *ctx, struct file *file, const struct dns_received *r,
				      __s32 ret, __u32 fd)
{
	/*
	 * From memory, because a register that holds the result of the call as a long has 32 more bits,
	 * which the verifier does not know.
	 */
	__u32 zero = 0, len = *(const volatile __u32 *)&r->size;
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);

	if (!e)
		return;
	__builtin_memset(e, 0, offsetof(struct event, data));
	if (len > targ_max_bytes)
		len = targ_max_bytes;
	if (len > DATA_MAX)
		len = DATA_MAX;
	if (bpf_probe_read_user(e->data, len, (void *)r->message))
		len = 0;
	task_info_current(&e->task);
	e->bytes = ret;
	e->socket_inode = BPF_CORE_READ(file, f_inode, i_ino);
	e->fd = fd;
	e->data_len = len;
	if (len <= DATA_MAX)
		event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret, bool btf)
{
	struct dns_received r = { .size = ret };
	const struct sock *sk;
	struct file *file;
	bool compat;
	__u32 fd;

	nr &= ~__X32_SYSCALL_BIT;
	if (ret <= 0 || !call_is_possible(nr) || !task_current_wanted())
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (dns_call(regs, nr, compat) == DNS_CALL_NONE && !is_readv(nr, compat))
		return 0;
	fd = sock_call_arg(regs, nr, 0, compat);
	file = task_file(task_current(), fd);
	sk = file ? file_sock(file) : NULL;
	if (!sk || BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX)
		return 0;
	if (find_buffer(&r, regs, nr, compat))
		send_data(ctx, file, &r, ret, fd);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call__btf, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(call__raw, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(ctx, regs, syscall_nr(regs), ret, false));
}

SEC("tp/raw_syscalls/sys_exit")
int call__tp(struct trace_event_raw_sys_exit *ctx)
{
	return NOT_PREEMPTED(handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
