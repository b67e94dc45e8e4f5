// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "sock.bpf.h"
#include "accept.bpf.h"

struct event {
	struct task_info task;
	struct sock_ends ends;
	__s32 backlog; /* -1 if the listener is unknown */
	__s32 backlog_max;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/*
 * Connections that one of two programs has reported, and the other will see next: the kernel
 * chooses which one runs first. The value distinguishes connections whose sockets had the same
 * address, in case the other program is skipped.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, const struct sock *);
	__type(value, __u32);
} reported SEC(".maps");

static __always_inline bool is_reported(const struct sock *sk, enum accept_run run)
{
	__u32 ends = BPF_CORE_READ(sk, __sk_common.skc_hash), *other;

	if (run == ACCEPT_ONLY)
		return false;
	other = bpf_map_lookup_elem(&reported, &sk);
	if (other && *other == ends) {
		bpf_map_delete_elem(&reported, &sk);
		return true;
	}
	if (!bpf_map_update_elem(&reported, &sk, &ends, BPF_ANY))
		return false;
	/*
	 * The entry could not be added, so the other program cannot find it: only one of them may
	 * report.
	 */
	return run == ACCEPT_SECOND;
}

static __always_inline void read_backlog(struct event *e, const struct sock *listener)
{
	e->backlog = -1;
	e->backlog_max = -1;
	if (!listener || BPF_CORE_READ(listener, __sk_common.skc_state) != TCP_LISTEN)
		return;
	e->backlog = BPF_CORE_READ(listener, sk_ack_backlog);
	e->backlog_max = BPF_CORE_READ(listener, sk_max_ack_backlog);
}

static __always_inline void handle_accept(void *ctx, const struct sock *listener,
					  const struct sock *sk, enum accept_run run)
{
	struct event e = {};

	if (!task_current_wanted())
		return;
	sock_ends_read(&e.ends, sk);
	if (!ends_wanted(&e.ends) || is_reported(sk, run))
		return;
	task_info_current(&e.task);
	read_backlog(&e, listener);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
