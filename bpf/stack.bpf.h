/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __STACK_BPF_H
#define __STACK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* As deep as kernel.perf_event_max_stack is, unless it was changed. */
#define STACK_DEPTH 127
#define STACK_BYTES (STACK_DEPTH * sizeof(__u64))

/*
 * stack_read writes the return addresses of the kernel functions that are being run,
 * the innermost first, and returns their bytes: 0 where there is no stack.
 */
static __always_inline __u32 stack_read(void *ctx, void *addrs)
{
	__u32 len = bpf_get_stack(ctx, addrs, STACK_BYTES, 0);

	/* Or clang compares the result, and the verifier learns nothing of what is returned. */
	barrier_var(len);
	return len <= STACK_BYTES ? len : 0;
}

#endif
