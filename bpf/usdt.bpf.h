/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __USDT_BPF_H
#define __USDT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "map.bpf.h"

/*
 * Arguments of USDT probes (SEC("usdt/FILE:PROVIDER:NAME")). For each location of a probe, user
 * space describes where its arguments are (struct usdt_spec); the attach cookie is the index of
 * that spec. In kernels without attach cookies (before 5.15, 47a71c1f9af0) user space loads the
 * program once per spec, with the index in place of the helper call.
 */
#define USDT_ARGS_MAX 12
#define USDT_SPECS_MAX 1024

enum usdt_kind {
	USDT_CONSTANT,
	USDT_REGISTER,
	USDT_MEMORY,
};

/* Keeps the type in the BTF of the object, for comparison with the Go constants. */
const enum usdt_kind *usdt_kind_type __attribute__((unused));

/* Part of a register. */
struct usdt_reg {
	__u16 offset; /* in struct pt_regs */
	__u8 is_set;
	__u8 shift; /* bits below the part */
	__u8 drop; /* bits above the part, after the shift */
	__u8 is_signed;
	__u8 pad[2];
};

struct usdt_arg {
	__s64 disp;
	struct usdt_reg base, index;
	__u8 kind;
	__u8 scale; /* shift of the index to the left, in bits */
	__u8 drop; /* 64 - bits of the argument's type */
	__u8 is_signed;
	__u8 pad[4];
};

struct usdt_spec {
	struct usdt_arg args[USDT_ARGS_MAX];
	__u64 nr_args;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, USDT_SPECS_MAX);
	__type(key, __u32);
	__type(value, struct usdt_spec);
} usdt_specs SEC(".maps") USER_SPACE;

static __always_inline __u64 usdt_extend(__u64 val, __u8 drop, bool is_signed)
{
	val <<= drop & 63;
	if (is_signed)
		return (__s64)val >> (drop & 63);
	return val >> (drop & 63);
}

static __always_inline __u64 usdt_reg_value(void *ctx, const struct usdt_reg *r)
{
	__u64 val = 0;

	if (!r->is_set)
		return 0;
	bpf_probe_read_kernel(&val, sizeof(val), ctx + r->offset);
	return usdt_extend(val >> (r->shift & 63), r->drop, r->is_signed);
}

/*
 * usdt_arg reads argument n, from 0. It fails if the argument does not exist, or its memory cannot
 * be read.
 */
static __noinline long usdt_arg(void *ctx, __u64 n, __u64 *val)
{
	__u32 nr = bpf_get_attach_cookie(ctx);
	struct usdt_spec *spec = bpf_map_lookup_elem(&usdt_specs, &nr);
	const struct usdt_arg *arg;
	__u64 value;
	long err;

	if (!spec || n >= USDT_ARGS_MAX || n >= spec->nr_args)
		return -2; /* ENOENT */
	arg = &spec->args[n];
	value = usdt_reg_value(ctx, &arg->base) + arg->disp;
	if (arg->kind == USDT_MEMORY) {
		value += usdt_reg_value(ctx, &arg->index) << (arg->scale & 63);
		err = bpf_probe_read_user(&value, sizeof(value), (void *)value);
		if (err)
			return err;
	}
	*val = usdt_extend(value, arg->drop, arg->is_signed);
	return 0;
}

#endif
