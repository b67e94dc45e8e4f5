/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __OPENSSL_BPF_H
#define __OPENSSL_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/*
 * Calls of functions of OpenSSL, with their time and result. The number of a function is its position
 * in one of these lists, plus the first number of the list. User space has the names (package
 * openssl). The tool defines openssl_call_end().
 */
#define TLS_FUNCTIONS "SSL_read,SSL_read_ex,SSL_write,SSL_write_ex,SSL_write_ex2,SSL_do_handshake"
#define CRYPTO_FUNCTIONS                                                                                  \
	"rsa_ossl_public_encrypt,rsa_ossl_public_decrypt,rsa_ossl_private_encrypt,"                       \
	"rsa_ossl_private_decrypt,RSA_sign,RSA_verify,ossl_ecdsa_sign,ossl_ecdsa_verify,"                 \
	"ossl_ecdh_compute_key,EVP_DigestSign,EVP_DigestVerify,EVP_PKEY_sign,EVP_PKEY_verify,"            \
	"EVP_PKEY_encrypt,EVP_PKEY_decrypt,EVP_PKEY_derive,EVP_PKEY_encapsulate,EVP_PKEY_decapsulate," \
	"EVP_PKEY_generate"

enum {
	TLS_FIRST = 0,
	SSL_WRITE_EX = 3,
	SSL_WRITE_EX2 = 4,
	CRYPTO_FIRST = 32,
};

struct call {
	__u64 start_ns; /* CLOCK_BOOTTIME */
	__u64 channel; /* first argument: struct ssl_st, for functions of libssl */
	__u32 function;
	__u32 pad;
};

/* The handshake in a read, a signature in it, and the functions that implement it. */
#define CALL_DEPTH_MAX 8

#include "usercall.bpf.h"

/* Called when a function returns, in the context of its thread. */
static __always_inline void openssl_call_end(struct pt_regs *ctx, const struct call *call, __s32 ret);

static __always_inline int openssl_enter(struct pt_regs *ctx, __u32 function)
{
	struct call *c;

	if (!task_current_wanted())
		return 0;
	c = user_call_begin(ctx);
	if (!c)
		return 0;
	c->function = function;
	c->channel = function < CRYPTO_FIRST ? PT_REGS_PARM1(ctx) : 0;
	c->start_ns = bpf_ktime_get_boot_ns();
	return 0;
}

/* From OpenSSL 3.3 on, SSL_write_ex() calls SSL_write_ex2(), which is a part of the outer call. */
static __always_inline bool openssl_is_inner(const struct call *call)
{
	struct calls *all;

	if (call->function != SSL_WRITE_EX2)
		return false;
	all = calls_find(bpf_get_current_pid_tgid());
	if (!all)
		return false;
	for (int i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i] && all->call[i].function == SSL_WRITE_EX &&
		    all->call[i].channel == call->channel)
			return true;
	return false;
}

static __always_inline int openssl_leave(struct pt_regs *ctx)
{
	__s32 ret = PT_REGS_RC(ctx);
	struct call call;
	bool nested;

	if (user_call_end(ctx, &call, &nested) && !(nested && openssl_is_inner(&call)))
		openssl_call_end(ctx, &call, ret);
	return 0;
}

SEC("uretprobe/libssl:" TLS_FUNCTIONS)
int tls__uprobe__return(struct pt_regs *ctx)
{
	return openssl_leave(ctx);
}

SEC("uprobe/libssl:" TLS_FUNCTIONS)
int tls__uprobe__enter(struct pt_regs *ctx)
{
	return openssl_enter(ctx, TLS_FIRST + bpf_get_attach_cookie(ctx));
}

SEC("uretprobe/libcrypto:" CRYPTO_FUNCTIONS)
int crypto__uprobe__return(struct pt_regs *ctx)
{
	return openssl_leave(ctx);
}

SEC("uprobe/libcrypto:" CRYPTO_FUNCTIONS)
int crypto__uprobe__enter(struct pt_regs *ctx)
{
	return openssl_enter(ctx, CRYPTO_FIRST + bpf_get_attach_cookie(ctx));
}

#endif
