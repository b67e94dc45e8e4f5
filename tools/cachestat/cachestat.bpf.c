// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

struct totals {
	__u64 accessed;
	__u64 added;
	__u64 dirtied;
	__u64 dirties;
};

#include "totals.bpf.h"

#define CACHE_COUNT(member) totals_add(member, 1)

#include "pagecache.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
