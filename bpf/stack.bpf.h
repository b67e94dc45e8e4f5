/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACK_BPF_H
#define __STACK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The default of kernel.perf_event_max_stack. */
#define STACK_DEPTH 127
#define STACK_BYTES (STACK_DEPTH * sizeof(__u64))

/*
 * stack_read writes the return addresses of the kernel stack, innermost first, and returns their
 * size in bytes, 0 without a stack.
 */
static __always_inline __u32 stack_read(void *ctx, void *addrs)
{
	__u32 len = bpf_get_stack(ctx, addrs, STACK_BYTES, 0);

	/*
	 * Otherwise clang checks another register, and the verifier does not know the bounds of the
	 * result.
	 */
	barrier_var(len);
	return len <= STACK_BYTES ? len : 0;
}

#endif
