// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "syscall.bpf.h"
#include "path.bpf.h"
#include "sock.bpf.h"

#define EEXIST 17
#define NO_UID (-1U) /* as the kernel's INVALID_UID */
#define PF_KTHREAD 0x00200000
#define SYS_ACCEPT 5 /* include/uapi/linux/net.h */
#define SYS_ACCEPT4 18
#define PORTS_WORDS (65536 / 64)

/* Bits of the ports that are wanted. */
const volatile bool targ_by_lport = false;
const volatile bool targ_by_rport = false;
const volatile __u64 targ_lports[PORTS_WORDS] = {};
const volatile __u64 targ_rports[PORTS_WORDS] = {};
/* As on the wire: 4, 6 or 0 for both. */
const volatile __u8 targ_family = 0;

enum row_state {
	ROW_CLOSED = 1,
	ROW_EXISTING,
	ROW_OPEN,
};

enum direction {
	DIRECTION_UNKNOWN,
	DIRECTION_ACTIVE,
	DIRECTION_PASSIVE,
};

/* A connection from its first state on. */
struct conn {
	struct task_info owner; /* pid 0 until there is one; its time is when it was taken */
	__u64 birth_ns; /* CLOCK_BOOTTIME; 0 when the beginning was not seen */
	__u64 established_ns; /* likewise */
	__u32 hash; /* of its ends, once they are known: a socket's memory is used again */
	__u8 direction;
	__u8 state; /* the newest that was seen */
	bool wanted; /* its owner is */
	__u8 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, const struct sock *);
	__type(value, struct conn);
} conns SEC(".maps");

struct event {
	struct task_info task; /* the owner; its time is the row's */
	__u64 tx_bytes;
	__u64 rx_bytes;
	__u64 duration_ns; /* 0 when the beginning was not seen */
	__u64 established_ns; /* 0 when it was not seen, or never came */
	struct sock_ends ends;
	__s32 error; /* -errno */
	__u32 retransmits;
	__u32 rtt_us;
	__u8 state; /* enum row_state */
	__u8 tcp_state;
	__u8 direction;
	bool partial;
};

static __always_inline bool sock_is_tcp(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return (family == AF_INET || family == AF_INET6) &&
	       BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
}

/* The states of a connection that has begun and is not over, as the socket has them. */
static __always_inline bool state_is_open(__u8 state)
{
	const __u32 open = 1 << TCP_ESTABLISHED | 1 << TCP_SYN_SENT | 1 << TCP_SYN_RECV |
			   1 << TCP_FIN_WAIT1 | 1 << TCP_FIN_WAIT2 | 1 << TCP_CLOSE_WAIT |
			   1 << TCP_LAST_ACK | 1 << TCP_CLOSING;

	return state < 32 && open & 1 << state;
}

/* In these states this end has closed: a FIN is sent or waits behind the data. */
static __always_inline bool state_has_fin(__u8 state)
{
	return state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSING ||
	       state == TCP_LAST_ACK;
}

/*
 * Payload that was sent at least once: the sequence numbers that are acknowledged or
 * under way, without SYN and FIN. bytes_acked has the SYN of the end that connects,
 * as its first acknowledgement; the other end's socket is made behind its SYN.
 * bytes_sent - bytes_retrans has neither, but counts a segment again that a full
 * queue of this host refused; where the direction is unknown it still tells whether
 * there was a SYN.
 */
static __always_inline __u64 tx_bytes(const struct tcp_sock *tp, __u8 direction, __u8 state)
{
	__u32 snd_nxt = BPF_CORE_READ(tp, snd_nxt);
	__u64 n = BPF_CORE_READ(tp, bytes_acked) + (__u32)(snd_nxt - BPF_CORE_READ(tp, snd_una));
	__u64 sent;

	if (n && state_has_fin(state) && snd_nxt == BPF_CORE_READ(tp, write_seq))
		n--;
	if (n && direction == DIRECTION_ACTIVE)
		n--;
	if (direction == DIRECTION_UNKNOWN) {
		sent = BPF_CORE_READ(tp, bytes_sent) - BPF_CORE_READ(tp, bytes_retrans);
		if (sent + 1 == n)
			n = sent;
	}
	return n;
}

/* Payload that was received in order; bytes_received has the FIN, which sets SOCK_DONE. */
static __always_inline __u64 rx_bytes(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	__u64 n = BPF_CORE_READ(tp, bytes_received);
	bool fin = BPF_CORE_READ(sk, __sk_common.skc_flags) &
		   1UL << bpf_core_enum_value(enum sock_flags, SOCK_DONE);

	return n && fin ? n - 1 : n;
}

static __always_inline bool port_in(__u16 port, const volatile __u64 *ports)
{
	return ports[port / 64] & 1ULL << port % 64;
}

static __always_inline bool ends_wanted(const struct sock_ends *ends)
{
	if (targ_family && addr_is_ipv4(&ends->raddr) != (targ_family == 4))
		return false;
	if (targ_by_lport && !port_in(ends->lport, targ_lports))
		return false;
	if (targ_by_rport && !port_in(ends->rport, targ_rports))
		return false;
	return true;
}

/* fill_event tells whether the connection is wanted; tcp_state is its last one. */
static __noinline bool fill_event(struct event *e, const struct sock *sk,
				  const struct conn *c, enum row_state state, __u8 tcp_state)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u64 now_ns = bpf_ktime_get_boot_ns();

	if (!c->wanted)
		return false;
	sock_ends_read(&e->ends, sk);
	if (!ends_wanted(&e->ends))
		return false;
	e->task = c->owner;
	e->task.time_ns = now_ns;
	if (c->birth_ns)
		e->duration_ns = now_ns - c->birth_ns;
	if (c->established_ns)
		e->established_ns = now_ns - c->established_ns;
	e->partial = !c->birth_ns;
	e->tx_bytes = tx_bytes(tp, c->direction, tcp_state);
	e->rx_bytes = rx_bytes(tp);
	e->retransmits = BPF_CORE_READ(tp, total_retrans);
	e->rtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	e->error = -BPF_CORE_READ(sk, sk_err);
	e->state = state;
	e->tcp_state = tcp_state;
	e->direction = c->direction;
	return true;
}

static __always_inline void conn_set_owner(struct conn *c)
{
	task_info_current(&c->owner);
	c->wanted = task_current_wanted();
}

/*
 * old is what the socket's last connection left behind, if its end was missed. Of two
 * programs that find no room only the second tells.
 */
static __always_inline void conn_begin(const struct sock *sk, const struct conn *old,
				       __u8 direction, __u8 state, bool again)
{
	struct conn c = {
		.owner.uid = NO_UID,
		.direction = direction,
		.state = state,
		.wanted = !task_filter,
	};

	if (!sock_is_tcp(sk))
		return;
	if (old)
		lost_add(program_busy);
	if (direction == DIRECTION_ACTIVE)
		conn_set_owner(&c);
	c.birth_ns = bpf_ktime_get_boot_ns();
	if (bpf_map_update_elem(&conns, &sk, &c, BPF_ANY) && again)
		lost_add(map_full);
}

/*
 * The handshake began before this tool did, or its beginning was missed. If there was
 * no room for it, that is counted already.
 */
static __always_inline struct conn *conn_begin_late(const struct sock *sk, __u8 oldstate)
{
	struct conn c = {
		.owner.uid = NO_UID,
		.direction = oldstate == TCP_SYN_SENT ? DIRECTION_ACTIVE : DIRECTION_PASSIVE,
		.wanted = !task_filter,
	};

	if (!sock_is_tcp(sk))
		return NULL;
	bpf_map_update_elem(&conns, &sk, &c, BPF_NOEXIST);
	return bpf_map_lookup_elem(&conns, &sk);
}

/*
 * A passive connection's socket is made when the handshake is over, or at the SYN
 * with TCP Fast Open. The first sample of the round-trip time, taken just before,
 * says when the SYN/ACK was sent that is answered here.
 */
static __always_inline void conn_establish(const struct sock *sk, struct conn *c)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	__u64 now_ns = bpf_ktime_get_boot_ns();
	__u64 rtt_ns = (BPF_CORE_READ(tp, srtt_us) >> 3) * 1000ULL;

	c->established_ns = now_ns;
	c->hash = BPF_CORE_READ(sk, __sk_common.skc_hash);
	if (c->direction == DIRECTION_PASSIVE && c->birth_ns > now_ns - rtt_ns)
		c->birth_ns = now_ns - rtt_ns;
}

/*
 * The owner is who called connect or accept. Only for connections that neither was
 * seen of (accepted by io_uring), it is who closes first; kernel threads close in
 * place of others.
 */
static __always_inline void conn_closing(struct conn *c)
{
	if (!c->owner.pid && !(BPF_CORE_READ(task_current(), flags) & PF_KTHREAD))
		conn_set_owner(c);
}

static __always_inline void conn_end(void *ctx, const struct sock *sk, const struct conn *c,
				     __u8 oldstate)
{
	struct event e = {};

	if (fill_event(&e, sk, c, ROW_CLOSED, oldstate))
		event_send(ctx, &e, sizeof(e), e.task.time_ns);
	bpf_map_delete_elem(&conns, &sk);
}

/*
 * Connecting, accepting and closing (to FIN_WAIT1 and LAST_ACK) happen in the task
 * that does so. All else may run in whichever task is there when a packet comes.
 *
 * The kernel leaves a program out where it is running on the CPU already: when a
 * softirq comes between, and from 7.0 (a46023d5616e) another task may too. So each is
 * there twice. What one has seen, the other sees in the connection's state.
 */
static __always_inline int handle_state(void *ctx, const struct sock *sk, int oldstate,
					int newstate, bool again)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &sk);

	if (c && c->state == newstate)
		return 0;
	if (newstate == TCP_SYN_SENT) {
		conn_begin(sk, c, DIRECTION_ACTIVE, newstate, again);
		return 0;
	}
	if (newstate == TCP_SYN_RECV && oldstate == TCP_LISTEN) {
		conn_begin(sk, c, DIRECTION_PASSIVE, newstate, again);
		return 0;
	}
	if (!c && newstate == TCP_ESTABLISHED)
		c = conn_begin_late(sk, oldstate);
	if (!c)
		return 0;
	c->state = newstate;
	if (newstate == TCP_ESTABLISHED)
		conn_establish(sk, c);
	else if (newstate == TCP_FIN_WAIT1 || newstate == TCP_LAST_ACK)
		conn_closing(c);
	else if (newstate == TCP_CLOSE)
		conn_end(ctx, sk, c, oldstate);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__btf, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, false);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state__btf__again, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, true);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(state__raw, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, false);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(state__raw__again, const struct sock *sk, int oldstate, int newstate)
{
	return handle_state(ctx, sk, oldstate, newstate, true);
}

static __always_inline int handle_accept(const struct sock *sk)
{
	struct conn *c = bpf_map_lookup_elem(&conns, &sk);

	if (c && !c->owner.pid)
		conn_set_owner(c);
	return 0;
}

/* Three of its four arguments are in a struct from 6.10 on (92ef0fd55ac8). */
static __always_inline int handle_accept_exit(__u64 *ctx)
{
	if (bpf_core_type_exists(struct proto_accept_arg))
		return handle_accept((const struct sock *)ctx[2]);
	return handle_accept((const struct sock *)ctx[4]);
}

SEC("fexit/inet_csk_accept")
int accept__fentry(__u64 *ctx)
{
	return handle_accept_exit(ctx);
}

SEC("fexit/inet_csk_accept")
int accept__fentry__again(__u64 *ctx)
{
	return handle_accept_exit(ctx);
}

static __always_inline bool is_compat_accept(struct pt_regs *regs, __s32 nr)
{
	__u64 call;

	if (nr != NR_compat_socketcall)
		return nr == NR_compat_accept || nr == NR_compat_accept4;
	call = syscall_arg(regs, 0, true);
	return call == SYS_ACCEPT || call == SYS_ACCEPT4;
}

/* The new descriptor still stands for what was accepted, unless another thread has closed it. */
static __always_inline int handle_exit(struct pt_regs *regs, __s32 nr, long ret)
{
	struct file *file;
	struct sock *sk;

	nr &= ~__X32_SYSCALL_BIT;
	if (nr != NR_accept && nr != NR_accept4 && nr != NR_compat_accept &&
	    nr != NR_compat_accept4 && nr != NR_compat_socketcall)
		return 0;
	if ((__s32)ret < 0)
		return 0;
	if (syscall_is_compat(regs) ? !is_compat_accept(regs, nr) : nr != NR_accept && nr != NR_accept4)
		return 0;
	file = task_file(task_current(), ret);
	sk = file ? file_sock(file) : NULL;
	return sk ? handle_accept(sk) : 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(accept__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(regs, SYSCALL_NR(regs), ret);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(accept__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(regs, syscall_nr(regs), ret);
}

/*
 * list_existing begins a connection that was there before. A record that does not fit
 * is taken back, as the kernel then calls again for the same socket.
 */
static __always_inline int list_existing(struct seq_file *seq, const struct sock *sk,
					 struct conn *c)
{
	__u8 state = BPF_CORE_READ(sk, __sk_common.skc_state);
	struct event e = {};
	long err;

	if (!state_is_open(state) || !sock_is_tcp(sk))
		return 0;
	c->hash = BPF_CORE_READ(sk, __sk_common.skc_hash);
	c->state = state;
	if (state == TCP_SYN_SENT)
		c->direction = DIRECTION_ACTIVE;
	err = bpf_map_update_elem(&conns, &sk, c, BPF_NOEXIST);
	if (err == -EEXIST)
		return 0;
	if (err) {
		lost_add(map_full);
		return 0;
	}
	/* It may have closed before there was an entry to delete. */
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE ||
	    (fill_event(&e, sk, c, ROW_EXISTING, state) && bpf_seq_write(seq, &e, sizeof(e))))
		bpf_map_delete_elem(&conns, &sk);
	return 0;
}

/* Sockets that tasks hold, of all network namespaces: the first holder is the owner. */
SEC("iter/task_file")
int existing_files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct conn c = { .wanted = true };
	struct sock *sk;

	if (!task || !file)
		return 0;
	sk = file_sock(file);
	if (!sk || !task_wanted(task))
		return 0;
	task_info_read(&c.owner, task);
	return list_existing(ctx->meta->seq, sk, &c);
}

/* The others of this network namespace: not accepted yet, or closed by their tasks. */
SEC("iter/tcp")
int existing_socks(struct bpf_iter__tcp *ctx)
{
	const struct sock *sk = (const struct sock *)ctx->sk_common;
	struct conn c = { .owner.uid = NO_UID, .wanted = !task_filter };

	return sk ? list_existing(ctx->meta->seq, sk, &c) : 0;
}

/* With nothing attached any more, a socket may be gone, or another connection's. */
SEC("iter/bpf_map_elem")
int open_conns(struct bpf_iter__bpf_map_elem *ctx)
{
	const struct sock **key = ctx->key;
	const struct conn *c = ctx->value;
	const struct sock *sk;
	struct event e = {};
	__u8 state;

	if (!key || !c)
		return 0;
	sk = *key;
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (!state_is_open(state))
		return 0;
	if (c->hash && c->hash != BPF_CORE_READ(sk, __sk_common.skc_hash))
		return 0;
	if (fill_event(&e, sk, c, ROW_OPEN, state))
		bpf_seq_write(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
