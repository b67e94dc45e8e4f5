// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "observing.bpf.h"
#include "task.bpf.h"

#define AF_INET 2
#define AF_INET6 10
#define SOCK_TYPE_MASK 0xf
#define PROTOCOL_MPTCP 262 /* IPPROTO_MPTCP */
#define NAMES_MAX 16

/* Names of threads; without any all are wanted. */
const volatile __u32 targ_nr_names = 0;
const volatile char targ_names[NAMES_MAX][TASK_COMM_LEN] = {};

struct counters {
	__u64 left_tcp; /* sockets that were left TCP, in network namespaces that refuse MPTCP */
};

#include "counters.bpf.h"

struct event {
	struct task_info task;
	__s32 ret; /* descriptor or -errno */
	__u32 family;
	__u32 netns;
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* A call that was changed and has not returned. */
struct pending {
	__u32 family;
	__u32 netns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32); /* thread */
	__type(value, struct pending);
} pending SEC(".maps");

/* Network namespaces in which a changed call failed. Their sockets are left as they are. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} refusing SEC(".maps");

/* The number of entries in pending, so that most returns of calls need no lookup. */
__s64 nr_pending;

static __always_inline bool name_wanted(void)
{
	char comm[TASK_COMM_LEN] = {};

	if (!targ_nr_names)
		return true;
	bpf_get_current_comm(comm, sizeof(comm));
	for (int i = 0; i < NAMES_MAX; i++) {
		int k;

		if (i >= targ_nr_names)
			break;
		for (k = 0; k < TASK_COMM_LEN; k++)
			if (comm[k] != targ_names[i][k])
				break;
		if (k == TASK_COMM_LEN)
			return true;
	}
	return false;
}

static __always_inline bool is_tcp(int family, int type, int protocol)
{
	return (family == AF_INET || family == AF_INET6) && (type & SOCK_TYPE_MASK) == SOCK_STREAM &&
	       (!protocol || protocol == IPPROTO_TCP);
}

/*
 * The kernel uses a result other than 0 as the protocol, and otherwise that of the call. A call is
 * changed only if its return is observed, so that each changed call has a row.
 */
SEC("fmod_ret/update_socket_protocol")
int BPF_PROG(change__fentry, int family, int type, int protocol)
{
	struct task_struct *task = task_current();
	__u32 tid = bpf_get_current_pid_tgid();
	struct pending p = { .family = family };

	if (!observing || !is_tcp(family, type, protocol) || !name_wanted() || !task_current_wanted())
		return 0;
	p.netns = BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
	if (bpf_map_lookup_elem(&refusing, &p.netns)) {
		counter_add(left_tcp);
		return 0;
	}
	if (bpf_map_update_elem(&pending, &tid, &p, BPF_ANY)) {
		lost_add(map_full);
		return 0;
	}
	__sync_fetch_and_add(&nr_pending, 1);
	return PROTOCOL_MPTCP;
}

static __always_inline int handle_return(void *ctx, __s32 ret)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct event e = {};
	struct pending *p;
	__u8 one = 1;

	if (!nr_pending)
		return 0;
	p = bpf_map_lookup_elem(&pending, &tid);
	if (!p)
		return 0;
	e.family = p->family == AF_INET ? 4 : 6;
	e.netns = p->netns;
	bpf_map_delete_elem(&pending, &tid);
	__sync_fetch_and_add(&nr_pending, -1);
	/* Without MPTCP, -ENOPROTOOPT or -EPROTONOSUPPORT. */
	if (ret == -92 || ret == -93)
		bpf_map_update_elem(&refusing, &e.netns, &one, BPF_ANY);
	task_info_current(&e.task);
	e.ret = ret;
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(return__btf, struct pt_regs *regs, long ret)
{
	return handle_return(ctx, ret);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(return__raw, struct pt_regs *regs, long ret)
{
	return handle_return(ctx, ret);
}

SEC("tp/raw_syscalls/sys_exit")
int return__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_return(ctx, ctx->ret);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
