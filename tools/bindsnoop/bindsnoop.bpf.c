// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.bpf.h"
#include "task.bpf.h"

#define SYS_BIND 2 /* include/uapi/linux/net.h */

#if defined(__TARGET_ARCH_x86)
#define SOCK_CALL { 49, 361, SYS_BIND }
#else
#define SOCK_CALL { 200, 282, SYS_BIND }
#endif
#define SOCK_URING IORING_OP_BIND
#include "sockset.bpf.h"

/* Also failed calls. */
const volatile bool targ_failed = false;

/* Options of the socket, in the order in which the peers show them. */
enum option {
	OPTION_FREEBIND = 1,
	OPTION_TRANSPARENT = 2,
	OPTION_NO_PORT = 4,
	OPTION_REUSEADDR = 8,
	OPTION_REUSEPORT = 16,
};

struct event {
	struct task_info task;
	struct local_end local_end;
	__s32 ret;
	__u32 ifindex;
	__s32 wanted_port; /* -1 if unknown */
	__u32 options; /* enum option */
	__u32 family; /* 4 or 6, that of the socket if the address is unknown */
	__u32 has_addr; /* the address and port in local_end are known */
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* Until 6.6 (cafbe182a467 and others) the options were bit fields. */
struct inet_sock___bits {
	__u8 freebind : 1;
	__u8 transparent : 1;
	__u8 bind_address_no_port : 1;
} __attribute__((preserve_access_index));

static __always_inline __u8 inet_options(const struct sock *sk)
{
	const struct inet_sock *inet = (const void *)sk;
	const struct inet_sock___bits *old = (const void *)sk;
	__u64 flags;

	if (!bpf_core_field_exists(inet->inet_flags))
		return BPF_CORE_READ_BITFIELD_PROBED(old, freebind) |
		       BPF_CORE_READ_BITFIELD_PROBED(old, transparent) << 1 |
		       BPF_CORE_READ_BITFIELD_PROBED(old, bind_address_no_port) << 2;
	flags = BPF_CORE_READ(inet, inet_flags);
	return (flags >> INET_FLAGS_FREEBIND & 1) |
	       (flags >> INET_FLAGS_TRANSPARENT & 1) << 1 |
	       (flags >> INET_FLAGS_BIND_ADDRESS_NO_PORT & 1) << 2;
}

static __always_inline __u8 sock_options(const struct sock *sk)
{
	return inet_options(sk) |
	       (BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_reuse) ? OPTION_REUSEADDR : 0) |
	       (BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_reuseport) ? OPTION_REUSEPORT : 0);
}

/*
 * The address that the task requested, which is that of a failed call. For io_uring it is in memory
 * that the kernel can have reused when the request completes.
 */
static __always_inline void read_wanted(struct event *e, const struct sock_call *c)
{
	struct in6_addr addr = {};
	__u16 port = 0;

	e->wanted_port = -1;
	e->has_addr = !c->ret;
	if (c->uring || !sockaddr_read(&addr, &port, (void *)c->arg))
		return;
	e->wanted_port = port;
	e->has_addr = true;
	if (c->ret) {
		e->local_end.laddr = addr;
		e->local_end.lport = port;
	}
}

static __always_inline int handle_call(void *ctx, const struct sock_call *c)
{
	const struct sock *sk = c->sk;
	struct event e = {};
	bool is_ipv4;

	if (c->ret && !targ_failed)
		return 0;
	local_end_read(&e.local_end, sk);
	read_wanted(&e, c);
	is_ipv4 = e.has_addr ? addr_is_ipv4(&e.local_end.laddr) :
			       BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET;
	if (!family_wanted(is_ipv4) || port_is_excluded(e.has_addr ? e.local_end.lport : 0, targ_not_lports))
		return 0;
	e.family = is_ipv4 ? 4 : 6;
	task_info_read(&e.task, c->task);
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.ret = c->ret;
	e.ifindex = BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if);
	e.options = sock_options(sk);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
