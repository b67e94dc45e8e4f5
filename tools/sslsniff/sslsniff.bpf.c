/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

#define DATA_MAX 16384 /* size of a TLS record */

/* Maximum number of bytes sent per call. */
const volatile __u32 targ_data_bytes = 8192;

enum library {
	OPENSSL,
	GNUTLS,
	NSS,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum library *library_type __attribute__((unused));

enum direction {
	WRITE,
	READ,
	HANDSHAKE,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum direction *direction_type __attribute__((unused));

struct call {
	__u64 start_ns;
	const void *buf;
	const __u64 *done; /* address of the number of bytes, if it is not returned */
	__u64 channel; /* struct ssl_st, gnutls_session_t, PRFileDesc */
	__u8 library;
	__u8 direction;
	__u8 pad[6];
};

#include "usercall.bpf.h"

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u64 channel;
	__u64 len; /* bytes written or read */
	__s32 ret;
	__u32 data_len; /* the part of them in data */
	__u8 library;
	__u8 direction;
	__u8 truncated;
	__u8 pad[5];
};

struct scratch {
	struct event event;
	char data[DATA_MAX];
};

#include "scratch.bpf.h"

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline int enter(struct pt_regs *ctx, const struct call *call)
{
	struct call *c;

	if (!task_current_wanted())
		return 0;
	c = user_call_begin(ctx);
	if (c) {
		*c = *call;
		c->start_ns = bpf_ktime_get_boot_ns();
	}
	return 0;
}

/* The number of bytes that a call has transferred: its result, or stored at an address. */
static __always_inline __u64 bytes_done(const struct call *c, __s32 ret)
{
	__u64 len = 0;

	if (ret <= 0 || c->direction == HANDSHAKE)
		return 0;
	if (!c->done)
		return ret;
	bpf_probe_read_user(&len, sizeof(len), c->done);
	return len;
}

/* read_data is called when the call returns, because the memory is resident then. */
static __always_inline __u32 read_data(struct scratch *s, const struct call *c)
{
	__u64 len = s->event.len;

	if (len > targ_data_bytes)
		len = targ_data_bytes;
	if (len > DATA_MAX)
		len = DATA_MAX;
	if (bpf_probe_read_user(s->data, len, c->buf))
		len = 0;
	s->event.data_len = len;
	s->event.truncated = len < s->event.len;
	return len;
}

static __always_inline void send(struct pt_regs *ctx, const struct call *c, __s32 ret, __u64 len)
{
	struct scratch *s = scratch_begin();
	__u64 size;

	if (!s)
		return;
	task_info_current(&s->event.task);
	s->event.delta_ns = s->event.task.time_ns - c->start_ns;
	s->event.channel = c->channel;
	s->event.len = len;
	s->event.ret = ret;
	s->event.library = c->library;
	s->event.direction = c->direction;
	size = sizeof(s->event) + (len ? read_data(s, c) : 0);
	if (size <= sizeof(*s))
		event_send(ctx, s, size, s->event.task.time_ns);
	scratch_end();
}

/*
 * Library functions call each other: gnutls_record_send() calls gnutls_record_send2(), and
 * SSL_write_ex() calls SSL_write_ex2() from OpenSSL 3.3 on. A nested call that transfers the same
 * bytes is part of the outer call.
 */
static __always_inline bool is_inner(const struct call *call)
{
	struct calls *all = calls_find(bpf_get_current_pid_tgid());

	if (!all)
		return false;
	for (int i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i] && all->call[i].buf == call->buf && all->call[i].direction == call->direction)
			return true;
	return false;
}

static __always_inline int leave(struct pt_regs *ctx)
{
	__s32 ret = PT_REGS_RC(ctx);
	struct call call;
	bool nested;
	__u64 len;

	if (!user_call_end(ctx, &call, &nested) || (nested && is_inner(&call)))
		return 0;
	len = bytes_done(&call, ret);
	if (len || call.direction == HANDSHAKE)
		send(ctx, &call, ret, len);
	return 0;
}

static __always_inline int enter_data(struct pt_regs *ctx, enum library library, enum direction direction,
				      const __u64 *done)
{
	struct call call = {
		.library = library,
		.direction = direction,
		.done = done,
		.channel = PT_REGS_PARM1(ctx),
		.buf = (const void *)PT_REGS_PARM2(ctx),
	};

	return enter(ctx, &call);
}

static __always_inline int enter_handshake(struct pt_regs *ctx, enum library library)
{
	struct call call = { .library = library, .direction = HANDSHAKE, .channel = PT_REGS_PARM1(ctx) };

	return enter(ctx, &call);
}

SEC("uretprobe/openssl:SSL_write,SSL_read,SSL_write_ex,SSL_read_ex,SSL_write_ex2")
int openssl__uprobe__return(struct pt_regs *ctx)
{
	return leave(ctx);
}

SEC("uprobe/openssl:SSL_write")
int openssl__uprobe__write(struct pt_regs *ctx)
{
	return enter_data(ctx, OPENSSL, WRITE, NULL);
}

SEC("uprobe/openssl:SSL_read")
int openssl__uprobe__read(struct pt_regs *ctx)
{
	return enter_data(ctx, OPENSSL, READ, NULL);
}

SEC("uprobe/openssl:SSL_write_ex")
int openssl__uprobe__write_ex(struct pt_regs *ctx)
{
	return enter_data(ctx, OPENSSL, WRITE, (const __u64 *)PT_REGS_PARM4(ctx));
}

SEC("uprobe/openssl:SSL_write_ex2")
int openssl__uprobe__write_ex2(struct pt_regs *ctx)
{
	return enter_data(ctx, OPENSSL, WRITE, (const __u64 *)PT_REGS_PARM5(ctx));
}

SEC("uprobe/openssl:SSL_read_ex")
int openssl__uprobe__read_ex(struct pt_regs *ctx)
{
	return enter_data(ctx, OPENSSL, READ, (const __u64 *)PT_REGS_PARM4(ctx));
}

SEC("uretprobe/openssl:SSL_do_handshake")
int openssl_handshake__uprobe__return(struct pt_regs *ctx)
{
	return leave(ctx);
}

SEC("uprobe/openssl:SSL_do_handshake")
int openssl_handshake__uprobe__enter(struct pt_regs *ctx)
{
	return enter_handshake(ctx, OPENSSL);
}

SEC("uretprobe/gnutls:gnutls_record_send,gnutls_record_send2,gnutls_record_recv,gnutls_record_recv_seq")
int gnutls__uprobe__return(struct pt_regs *ctx)
{
	return leave(ctx);
}

SEC("uprobe/gnutls:gnutls_record_send,gnutls_record_send2")
int gnutls__uprobe__write(struct pt_regs *ctx)
{
	return enter_data(ctx, GNUTLS, WRITE, NULL);
}

SEC("uprobe/gnutls:gnutls_record_recv,gnutls_record_recv_seq")
int gnutls__uprobe__read(struct pt_regs *ctx)
{
	return enter_data(ctx, GNUTLS, READ, NULL);
}

SEC("uretprobe/gnutls:gnutls_handshake")
int gnutls_handshake__uprobe__return(struct pt_regs *ctx)
{
	return leave(ctx);
}

SEC("uprobe/gnutls:gnutls_handshake")
int gnutls_handshake__uprobe__enter(struct pt_regs *ctx)
{
	return enter_handshake(ctx, GNUTLS);
}

SEC("uretprobe/nss:PR_Write,PR_Send,PR_Read,PR_Recv")
int nss__uprobe__return(struct pt_regs *ctx)
{
	return leave(ctx);
}

SEC("uprobe/nss:PR_Write,PR_Send")
int nss__uprobe__write(struct pt_regs *ctx)
{
	return enter_data(ctx, NSS, WRITE, NULL);
}

SEC("uprobe/nss:PR_Read,PR_Recv")
int nss__uprobe__read(struct pt_regs *ctx)
{
	return enter_data(ctx, NSS, READ, NULL);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
