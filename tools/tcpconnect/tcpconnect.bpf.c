// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "sockcall.bpf.h"
#include "dns.bpf.h"
#include "syn.bpf.h"
#include "list.bpf.h"

#define SYS_CONNECT 3 /* include/uapi/linux/net.h */
#define SHUTDOWN_MASK 3
#define EINTR 4
#define EISCONN 106
#define EALREADY 114
#define EINPROGRESS 115
#define ERESTARTSYS 512 /* this and the next four are internal to the kernel */

/* Set if columns for names are displayed. */
const volatile bool want_name = false;
/* Only connects that took at least this time. */
const volatile __u64 targ_min_ns = 0;

enum result {
	RESULT_CONNECTED = 1,
	RESULT_FAILED,
	RESULT_CLOSED,
	RESULT_WAITING,
	RESULT_NAMES, /* not a connect, but a DNS answer, which follows the event */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum result *result_type __attribute__((unused));

/* A connect that is under way. */
struct attempt {
	struct task_info owner;
	__u64 start_ns; /* CLOCK_BOOTTIME */
	bool wanted; /* by its owner */
	bool waiting; /* its SYN was retransmitted */
	bool failed; /* in the system call, which will return the reason */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, const struct sock *);
	__type(value, struct attempt);
} attempts SEC(".maps");

/* Failures already reported, by inode of the socket: the system call returns them again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u8);
} reported SEC(".maps");

struct event {
	struct task_info task; /* the connecting task; its time is that of the row */
	__u64 duration_ns; /* 0 if no SYN was sent */
	struct sock_ends ends;
	__s32 error; /* -errno */
	__u8 result; /* enum result */
	__u8 pad;
	__u16 message_len; /* of the DNS answer */
};

struct scratch {
	struct event event;
	struct user_bytes message;
};

#include "scratch.bpf.h"

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* fill_event reports whether the connect is wanted. */
static __always_inline bool fill_event(struct event *e, const struct sock *sk,
				       const struct attempt *a, enum result result)
{
	sock_ends_read(&e->ends, sk);
	if (!a->wanted || !ends_wanted(&e->ends))
		return false;
	e->task = a->owner;
	e->task.time_ns = bpf_ktime_get_boot_ns();
	e->duration_ns = e->task.time_ns - sock_syn_ns(sk, a->start_ns, e->task.time_ns);
	e->result = result;
	return e->duration_ns >= targ_min_ns;
}

static __always_inline bool report(void *ctx, const struct sock *sk, const struct attempt *a,
				   enum result result, int error)
{
	struct event e = {};

	if (!fill_event(&e, sk, a, result))
		return false;
	e.error = error;
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return true;
}

static __always_inline __u64 sock_ino(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
}

/* From CLOSE to SYN_SENT, in the connecting task. A second program finds the entry. */
static __always_inline void attempt_begin(const struct sock *sk, const struct attempt *old,
					  bool second)
{
	struct attempt a = {};

	if (!sock_is_tcp(sk))
		return;
	if (old && second && old->owner.tid == (__u32)bpf_get_current_pid_tgid())
		return;
	task_info_current(&a.owner);
	a.start_ns = a.owner.time_ns;
	a.wanted = task_current_wanted();
	if (bpf_map_update_elem(&attempts, &sk, &a, BPF_ANY) && second)
		lost_add(map_full);
}

/*
 * A connect that finds no port or route fails in the system call, which alone has the reason. So
 * does one that is canceled by a connect to AF_UNSPEC.
 */
static __always_inline void attempt_fail(void *ctx, const struct sock *sk, struct attempt *a)
{
	int error = BPF_CORE_READ(sk, sk_err);
	__u64 ino = sock_ino(sk);
	const __u8 yes = 1;

	if (error) {
		bpf_map_update_elem(&reported, &ino, &yes, BPF_ANY);
		report(ctx, sk, a, RESULT_FAILED, -error);
	} else if (BPF_CORE_READ_BITFIELD_PROBED(sk, sk_shutdown) == SHUTDOWN_MASK) {
		report(ctx, sk, a, RESULT_CLOSED, 0);
	} else {
		a->failed = true;
		return;
	}
	bpf_map_delete_elem(&attempts, &sk);
}

/*
 * The kernel skips a program that is already running on the same CPU, so each program exists twice.
 * The second one does not find a connect that the first one has completed.
 */
static __always_inline int handle_state(void *ctx, const struct sock *sk, int newstate, bool second)
{
	struct attempt *a = bpf_map_lookup_elem(&attempts, &sk);

	if (newstate == TCP_SYN_SENT) {
		attempt_begin(sk, a, second);
		return 0;
	}
	if (!a)
		return 0;
	if (newstate == TCP_ESTABLISHED) {
		report(ctx, sk, a, RESULT_CONNECTED, 0);
		bpf_map_delete_elem(&attempts, &sk);
	} else if (newstate == TCP_CLOSE) {
		attempt_fail(ctx, sk, a);
	}
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__btf, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, newstate, false);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__btf__again, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, newstate, true);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(state__raw, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, newstate, false);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(state__raw__again, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, newstate, true);
}

/* No answer for a second, or for the requested time: the SYN is retransmitted. */
static __always_inline int handle_retransmit(void *ctx, const struct sock *sk)
{
	struct attempt *a = bpf_map_lookup_elem(&attempts, &sk);

	if (a && !a->waiting)
		a->waiting = report(ctx, sk, a, RESULT_WAITING, 0);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(syn__btf, const struct sock *sk)
{
	return handle_retransmit(ctx, sk);
}

SEC("raw_tp/tcp_retransmit_skb")
int BPF_PROG(syn__raw, const struct sock *sk)
{
	return handle_retransmit(ctx, sk);
}

static __always_inline bool is_connect(struct pt_regs *regs, __s32 nr, bool compat)
{
	if (!compat)
		return nr == NR_connect;
	return nr == NR_compat_connect ||
	       (nr == NR_compat_socketcall && syscall_arg(regs, 0, true) == SYS_CONNECT);
}

/* The call has failed, and was not only interrupted or used to query an earlier connect. */
static __always_inline bool is_failure(__s32 ret)
{
	return ret < 0 && ret != -EINPROGRESS && ret != -EALREADY && ret != -EISCONN &&
	       ret != -EINTR && (ret > -ERESTARTSYS || ret < -ERESTARTSYS - 4);
}

/* The address that the task requested: the socket has none if no SYN was sent. */
static __always_inline void read_wanted_end(struct sock_ends *ends, const void *addr)
{
	struct sockaddr_in6 to = {};
	struct sockaddr_in *to4 = (struct sockaddr_in *)&to;

	bpf_probe_read_user(&to, sizeof(*to4), addr);
	ends->rport = bpf_ntohs(to4->sin_port);
	if (to4->sin_family == AF_INET) {
		addr_set_ipv4(&ends->raddr, to4->sin_addr.s_addr);
	} else if (to4->sin_family == AF_INET6) {
		bpf_probe_read_user(&to, sizeof(to), addr);
		ends->raddr = to.sin6_addr;
	}
}

static __always_inline void tell_unsent(void *ctx, const struct sock *sk, const void *addr, int error)
{
	struct event e = {
		.result = error ? RESULT_FAILED : RESULT_CLOSED,
		.error = error,
	};

	if (targ_min_ns || !task_current_wanted())
		return;
	sock_ends_read(&e.ends, sk);
	read_wanted_end(&e.ends, addr);
	if (!ends_wanted(&e.ends))
		return;
	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

/* Answers to any task, because one task can look up names for others. */
static __always_inline void handle_answer(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret,
					  bool compat)
{
	struct dns_received r = {};
	struct scratch *s;
	int len;

	if (!dns_find(&r, regs, nr, ret, compat))
		return;
	s = scratch_begin();
	if (!s)
		return;
	len = user_data_read(&s->message, &r.message);
	if (len < 0)
		lost_add(unobserved);
	task_info_current(&s->event.task);
	s->event.result = RESULT_NAMES;
	s->event.message_len = len;
	barrier_var(len); /* old verifiers lose the bound when the register is spilled */
	if (len > 0 && len <= IOVEC_BYTES)
		event_send(ctx, s, sizeof(s->event) + len, s->event.task.time_ns);
	scratch_end();
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret, bool btf)
{
	const struct sock *sk;
	struct attempt *a;
	bool compat, unsent;
	__u64 ino;

	nr &= ~__X32_SYSCALL_BIT;
	if (!want_name && nr != NR_connect && nr != NR_compat_connect && nr != NR_compat_socketcall)
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (want_name)
		handle_answer(ctx, regs, nr, ret, compat);
	if (!is_connect(regs, nr, compat))
		return 0;
	sk = task_tcp_sock(sock_call_arg(regs, nr, 0, compat));
	if (!sk)
		return 0;
	a = bpf_map_lookup_elem(&attempts, &sk);
	unsent = a && a->failed;
	if (unsent)
		bpf_map_delete_elem(&attempts, &sk);
	ino = sock_ino(sk);
	if (is_failure(ret))
		unsent = bpf_map_delete_elem(&reported, &ino);
	if (unsent)
		tell_unsent(ctx, sk, (void *)sock_call_arg(regs, nr, 1, compat), ret);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(connect__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(connect__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int connect__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

/* Connects that are still in progress at the end, and were not reported yet. */
SEC("iter/bpf_map_elem")
int open_attempts(struct bpf_iter__bpf_map_elem *ctx)
{
	const struct sock **key = ctx->key;
	const struct attempt *a = ctx->value;
	const struct sock *sk;
	struct event e = {};

	if (!key || !a || a->waiting || a->failed)
		return 0;
	sk = *key;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_SYN_SENT)
		return 0;
	if (!fill_event(&e, sk, a, RESULT_WAITING))
		return 0;
	list_send(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
