// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "event.bpf.h"
#include "task.bpf.h"

#define SYS_LISTEN 4 /* include/uapi/linux/net.h */

#if defined(__TARGET_ARCH_x86)
#define SOCK_CALL { 50, 363, SYS_LISTEN }
#else
#define SOCK_CALL { 201, 284, SYS_LISTEN }
#endif
#define SOCK_URING IORING_OP_LISTEN
#include "sockset.bpf.h"

/* Only this network namespace, 0 for all. */
const volatile __u32 targ_netns = 0;

struct event {
	struct task_info task;
	struct local_end local_end;
	__s32 ret;
	__s32 backlog;
	__u32 backlog_max;
	__u32 family;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline __s32 read_backlog(const struct sock_call *c)
{
	struct io_kiocb *req = (void *)c->arg;
	struct io_listen *listen = (void *)req + bpf_core_field_offset(struct io_kiocb, cmd);

	return c->uring ? BPF_CORE_READ(listen, backlog) : c->arg;
}

static __always_inline int handle_call(void *ctx, const struct sock_call *c)
{
	const struct sock *sk = c->sk, *first;
	struct event e = {};

	local_end_read(&e.local_end, sk);
	if (targ_netns && e.local_end.netns != targ_netns)
		return 0;
	task_info_read(&e.task, c->task);
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.ret = c->ret;
	e.backlog = read_backlog(c);
	/* For MPTCP the queue is that of the first subflow. */
	first = sock_is_mptcp(sk) ? mptcp_first(sk) : NULL;
	e.backlog_max = BPF_CORE_READ(first ?: sk, sk_max_ack_backlog);
	e.family = BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET ? 4 : 6;
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
