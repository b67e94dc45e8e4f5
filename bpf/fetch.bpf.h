/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FETCH_BPF_H
#define __FETCH_BPF_H

#include "vmlinux.h"

/* It must fit into the frame of the function that has it, beside those of fetch() and of who calls. */
#ifndef FETCH_DATA_MAX
#define FETCH_DATA_MAX 272
#endif

/*
 * fetch() writes what the user wants to know of a hit to data, of FETCH_DATA_MAX bytes,
 * which are 0 before: a bit for each value that there is none of, and the values; the rest
 * is 0. It returns 0 for a hit that
 * is not wanted. User space writes its body, for the arguments of the target (package
 * fetch); the assembly keeps the compiler from knowing what this one does.
 */
static __noinline __u64 fetch(void *ctx, void *data)
{
	__u64 wanted;

	asm volatile("%0 = 1" : "=r"(wanted) : "r"(ctx), "r"(data) : "memory");
	return wanted;
}

#endif
