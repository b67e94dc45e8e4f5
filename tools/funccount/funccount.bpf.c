// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "mark.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

/* -1 for all CPUs. */
const volatile __s32 targ_cpu = -1;

struct table_key {
	__u32 target;
};

struct table_value {
	__u64 count;
};

#include "table.bpf.h"

static __always_inline int hit(void *ctx)
{
	struct table_key key = {};
	struct table_value *value;

	if (targ_cpu >= 0 && bpf_get_smp_processor_id() != targ_cpu)
		return 0;
	if (!task_current_wanted())
		return 0;
	key.target = target_id(ctx);
	value = table_find(&key);
	if (value)
		table_add(value, count, 1);
	return 0;
}

TARGET_PROGRAMS(hit(ctx))
TARGET_PROGRAM_RAW(hit(ctx))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
