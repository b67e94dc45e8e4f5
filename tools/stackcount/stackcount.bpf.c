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
const volatile bool user_stacks_only = false;
const volatile bool kernel_stacks_only = false;
/* Group stacks by process, in addition to their functions. */
const volatile bool by_pid = false;
/* User attach points are at the first instruction of functions. */
const volatile bool at_entry = false;

struct table_key {
	__u64 kernel_stack;
	__u64 user_stack;
	__u32 pid;
	char comm[TASK_COMM_LEN];
	__u32 target;
};

struct table_value {
	__u64 count;
};

#include "table.bpf.h"
#include "stacks.bpf.h"

static __always_inline int hit(void *ctx, bool entry)
{
	struct table_key key = {};
	struct table_value *value;

	if (targ_cpu >= 0 && bpf_get_smp_processor_id() != targ_cpu)
		return 0;
	if (!task_current_wanted())
		return 0;
	key.target = target_id(ctx);
	if (by_pid) {
		key.pid = bpf_get_current_pid_tgid() >> 32;
		bpf_get_current_comm(key.comm, sizeof(key.comm));
	}
	if (!user_stacks_only)
		key.kernel_stack = kernel_stack(ctx);
	if (!kernel_stacks_only)
		key.user_stack = entry ? user_stack_at_entry(ctx) : user_stack(ctx);
	value = table_find(&key);
	if (value)
		table_add(value, count, 1);
	return 0;
}

TARGET_PROGRAMS(hit(ctx, user_entry &&at_entry))
TARGET_PROGRAM_RAW(hit(ctx, user_entry &&at_entry))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
