// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lost.bpf.h"

/* The kernel itself maintains load averages, and user space reads them: there are no programs. */
struct totals {
	__u64 none;
};

#include "totals.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
