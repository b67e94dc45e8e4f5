/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FETCH_BPF_H
#define __FETCH_BPF_H

#include "vmlinux.h"
#include "lost.bpf.h"

/* Limited by the 512 bytes of stack that the caller, its callers and fetch() share. */
#ifndef FETCH_DATA_MAX
#define FETCH_DATA_MAX 272
#endif

enum fetch_result {
	FETCH_UNWANTED,
	FETCH_WANTED,
	FETCH_UNREAD, /* memory that a condition needs could not be read */
};

/* Keeps the type in the BTF of the object, for comparison with the Go constants. */
const enum fetch_result *fetch_result_type __attribute__((unused));

/*
 * fetch() evaluates the conditions and values of the user. It writes to data, which has
 * FETCH_DATA_MAX bytes and must be zeroed: a bitmap of the missing values, then the values. It
 * returns an enum fetch_result. User space generates its body for the arguments of the target
 * (package fetch). The assembly hides this body from the compiler.
 */
static __noinline __u64 fetch(void *ctx, void *data)
{
	__u64 wanted;

	asm volatile("%0 = 1" : "=r"(wanted) : "r"(ctx), "r"(data) : "memory");
	return wanted;
}

/*
 * fetch_wanted reports whether the hit is wanted. It counts hits whose condition could not be
 * evaluated.
 */
static __always_inline bool fetch_wanted(void *ctx, void *data)
{
	__u64 result = fetch(ctx, data);

	if (result == FETCH_UNREAD)
		lost_add(condition_unread);
	return result == FETCH_WANTED;
}

#endif
