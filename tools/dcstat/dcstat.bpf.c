// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

struct totals {
	__u64 refs;
	__u64 slow;
	__u64 misses;
};

#include "totals.bpf.h"
#include "dcache.bpf.h"

static __always_inline void dcache_fast(void *ctx, const struct qstr *name)
{
	totals_add(refs, 1);
}

static __always_inline void dcache_slow(void *ctx, const struct qstr *name, bool found)
{
	totals_add(slow, 1);
	if (!found)
		totals_add(misses, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
