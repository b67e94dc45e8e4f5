// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define IOVEC_BYTES 4096

#include "compat.bpf.h"
#include "dns.bpf.h"
#include "event.bpf.h"
#include "iovec.bpf.h"
#include "sockcall.bpf.h"
#include "task.bpf.h"

#define AF_UNIX 1
#define VECTOR_MAX 8 /* messages of one call of recvmmsg that are shown */

#if defined(__TARGET_ARCH_x86)
enum {
	NR_readv = 19,
	NR_recvmmsg = 299,
	NR_compat_recvmmsg = 337
};
#else
enum {
	NR_readv = 65,
	NR_recvmmsg = 243,
	NR_compat_recvmmsg = 365
};
#endif
#define NR_compat_readv 145
#define NR_compat_recvmmsg_time64 417

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* Show at most this number of bytes of each message. */
const volatile __u32 targ_max_bytes = 256;

struct event {
	struct task_info task;
	__u64 bytes;
	__u64 socket_inode;
	__u32 fd;
	__u32 data_len;
};

struct scratch {
	struct event event;
	struct user_bytes message; /* only the data of its size is sent */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline bool is_readv(__s32 nr, bool compat)
{
	return nr == (compat ? NR_compat_readv : NR_readv);
}

static __always_inline bool is_recvmmsg(__s32 nr, bool compat)
{
	if (compat)
		return nr == NR_compat_recvmmsg || nr == NR_compat_recvmmsg_time64;
	return nr == NR_recvmmsg;
}

/* A cheap check before the ABI is read. */
static __always_inline bool call_is_possible(__s32 nr)
{
	return nr == NR_read || nr == NR_readv || nr == NR_recvfrom || nr == NR_recvmsg ||
	       nr == NR_recvmmsg || nr == NR_compat_read || nr == NR_compat_readv ||
	       nr == NR_compat_recvfrom || nr == NR_compat_recvmsg || nr == NR_compat_recvmmsg ||
	       nr == NR_compat_recvmmsg_time64 || nr == NR_compat_socketcall;
}

/* Finds the buffers of the call. Returns false for other calls. */
static __always_inline bool find_buffers(struct user_data *d, struct pt_regs *regs, __s32 nr,
					 bool compat, __s32 ret)
{
	enum dns_call call = dns_call(regs, nr, compat);
	__u64 at = sock_call_arg(regs, nr, 1, compat), size;

	if (call == DNS_CALL_RECVMSG) {
		user_msghdr_read(d, (const void *)at, ret, compat);
		return true;
	}
	*d = (struct user_data){ .base = at, .size = ret, .is_32bit = compat };
	size = sock_call_arg(regs, nr, 2, compat);
	if (is_readv(nr, compat)) {
		d->is_vector = true;
		d->count = size;
		return true;
	}
	/* With MSG_TRUNC the result can be larger than the buffer. */
	if (d->size > size)
		d->size = size;
	return call != DNS_CALL_NONE;
}

/* Not inlined, because it is called in a loop. */
static __noinline int send_data(void *ctx, struct file *file, struct user_data *d, __u32 bytes, __u32 fd)
{
	__u32 zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	int len;

	if (!s)
		return 0;
	if (d->size > targ_max_bytes)
		d->size = targ_max_bytes;
	if (d->count > IOVEC_MAX) /* the data of further ones is cut */
		d->count = IOVEC_MAX;
	len = user_data_read(&s->message, d);
	if (len < 0)
		len = 0;
	__builtin_memset(&s->event, 0, sizeof(s->event));
	task_info_current(&s->event.task);
	s->event.bytes = bytes;
	s->event.socket_inode = BPF_CORE_READ(file, f_inode, i_ino);
	s->event.fd = fd;
	s->event.data_len = len;
	barrier_var(len); /* old verifiers lose the bound when the register is spilled */
	if (len >= 0 && len <= IOVEC_BYTES)
		event_send(ctx, s, sizeof(s->event) + len, s->event.task.time_ns);
	return 0;
}

/* struct mmsghdr is a struct msghdr of 28 or 56 bytes, and the size of the message. */
static __always_inline void send_messages(void *ctx, struct file *file, __u64 addr, __u32 nr, __u32 fd,
					  bool compat)
{
	const __u32 head = compat ? 28 : 56, step = compat ? 32 : 64;
	struct user_data d;

	for (__u32 i = 0; i < VECTOR_MAX; i++) {
		__u32 size = 0;

		if (i >= nr)
			break;
		bpf_probe_read_user(&size, sizeof(size), (const void *)(addr + i * step + head));
		user_msghdr_read(&d, (const void *)(addr + i * step), size, compat);
		if (size)
			send_data(ctx, file, &d, size, fd);
	}
	if (nr > VECTOR_MAX)
		lost_add_n(map_full, nr - VECTOR_MAX);
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret, bool btf)
{
	struct user_data d;
	const struct sock *sk;
	struct file *file;
	bool compat;
	__u32 fd;

	nr &= ~__X32_SYSCALL_BIT;
	if (ret <= 0 || !call_is_possible(nr) || !task_current_wanted())
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (dns_call(regs, nr, compat) == DNS_CALL_NONE && !is_readv(nr, compat) && !is_recvmmsg(nr, compat))
		return 0;
	fd = sock_call_arg(regs, nr, 0, compat);
	file = task_file(task_current(), fd);
	sk = file ? file_sock(file) : NULL;
	if (!sk || BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX)
		return 0;
	if (is_recvmmsg(nr, compat))
		send_messages(ctx, file, sock_call_arg(regs, nr, 1, compat), ret, fd, compat);
	else if (find_buffers(&d, regs, nr, compat, ret))
		send_data(ctx, file, &d, ret, fd);
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
