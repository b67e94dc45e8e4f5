// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "sock.bpf.h"
#include "task.bpf.h"

#define MSG_PEEK 2

struct table_key {
	struct sock_ends ends;
	__u64 cgroup_id;
	__u32 pid;
	__u32 uid;
	char comm[TASK_COMM_LEN];
};

struct table_value {
	__u64 tx_bytes;
	__u64 rx_bytes;
};

#include "table.bpf.h"

static __always_inline struct table_value *find(const struct sock *sk)
{
	struct table_key key = {};

	sock_ends_read(&key.ends, sk);
	if (!ends_wanted(&key.ends))
		return NULL;
	key.cgroup_id = task_current_cgroup_id();
	key.pid = bpf_get_current_pid_tgid() >> 32;
	key.uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	return table_find(&key);
}

static __always_inline void count(const struct sock *sk, __s32 bytes, const bool is_send)
{
	struct table_value *value;

	if (bytes <= 0 || !sock_is_tcp(sk) || !task_current_wanted())
		return;
	value = find(sk);
	if (!value)
		return;
	if (is_send)
		table_add(value, tx_bytes, bytes);
	else
		table_add(value, rx_bytes, bytes);
}

static __always_inline int handle(const struct sock *sk, __s32 bytes, const bool is_send)
{
	preempt_off();
	count(sk, bytes, is_send);
	preempt_on();
	return 0;
}

/* Of the functions: all that is sent and received, also by sendfile and splice. */
SEC("fexit/tcp_sendmsg")
int BPF_PROG(send__fentry, struct sock *sk, struct msghdr *msg, size_t size, int ret)
{
	return handle(sk, ret, true);
}

/* Threads that only look at what there is, until the function returns. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, bool);
} peeks SEC(".maps");

/* Whether there was one ever. */
bool has_peeked;

/*
 * The fourth argument of four or five or, until 5.19 (ec095263a965), the fifth of six. How
 * many there are the kernel tells from 5.17 on.
 */
static __always_inline int recvmsg_flags(__u64 *ctx)
{
	__u64 flags = 0;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_func_arg_cnt)) {
		flags = ctx[4];
		/* Else both ways' loads become one, at an address that the verifier refuses. */
		barrier_var(flags);
		return flags;
	}
	bpf_get_func_arg(ctx, bpf_get_func_arg_cnt(ctx) == 6 ? 4 : 3, &flags);
	return flags;
}

SEC("fentry/tcp_recvmsg")
int recv__fentry__enter(__u64 *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	bool yes = true;

	if (!(recvmsg_flags(ctx) & MSG_PEEK))
		return 0;
	has_peeked = true;
	if (bpf_map_update_elem(&peeks, &tid, &yes, BPF_ANY))
		lost_add(map_full);
	return 0;
}

SEC("fexit/tcp_recvmsg")
int recv__fentry__leave(__u64 *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (has_peeked)
		bpf_map_delete_elem(&peeks, &tid);
	return 0;
}

SEC("fentry/tcp_cleanup_rbuf")
int BPF_PROG(recv__fentry__copied, struct sock *sk, int copied)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (has_peeked && bpf_map_lookup_elem(&peeks, &tid))
		return 0;
	return handle(sk, copied, false);
}

/* What sendfile sent until 6.5 (1d7e4538a546). */
SEC("fexit/tcp_sendpage")
int BPF_PROG(sendpage__fentry, struct sock *sk, struct page *page, int offset, size_t size,
	     int flags, int ret)
{
	return handle(sk, ret, true);
}

/* These are there from 6.3 on (6e6eda44b939), for sockets of all kinds. */
static __always_inline int handle_length(const struct sock *sk, int ret, int flags,
					 const bool is_send)
{
	if (!is_send && flags & MSG_PEEK)
		return 0;
	return handle(sk, ret, is_send);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(send__btf, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, true);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(recv__btf, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, false);
}

SEC("raw_tp/sock_send_length")
int BPF_PROG(send__raw, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, true);
}

SEC("raw_tp/sock_recv_length")
int BPF_PROG(recv__raw, struct sock *sk, int ret, int flags)
{
	return handle_length(sk, ret, flags, false);
}

/* The socket that a thread is sending to, until the function returns. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, struct sock *);
} sends SEC(".maps");

SEC("kprobe/tcp_sendmsg")
int BPF_KPROBE(send__kprobe__enter, struct sock *sk)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (bpf_map_update_elem(&sends, &tid, &sk, BPF_ANY))
		lost_add(map_full);
	return 0;
}

SEC("kretprobe/tcp_sendmsg")
int BPF_KRETPROBE(send__kprobe__exit, int ret)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct sock **sk = bpf_map_lookup_elem(&sends, &tid);

	if (!sk) {
		lost_add(map_full);
		return 0;
	}
	handle(*sk, ret, true);
	bpf_map_delete_elem(&sends, &tid);
	return 0;
}

SEC("kprobe/tcp_cleanup_rbuf")
int BPF_KPROBE(recv__kprobe, struct sock *sk, int copied)
{
	return handle(sk, copied, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
