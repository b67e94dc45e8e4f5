/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __ARG_BPF_H
#define __ARG_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * trace_arg returns an argument of a tracepoint as a number, for tp_btf and raw_tp. Verifiers refuse
 * calculations with pointers, and accesses at an offset that is not a constant, as it is where the
 * arguments depend on the kernel. All arguments can be read as memory.
 */
static __always_inline __u64 trace_arg(__u64 *ctx, int nr)
{
	__u64 arg = 0;

	bpf_probe_read_kernel(&arg, sizeof(arg), &ctx[nr]);
	return arg;
}

#endif
