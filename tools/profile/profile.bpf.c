// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "samples.bpf.h"
#include "task.bpf.h"

const volatile bool include_idle = false;
const volatile bool user_stacks_only = false;
const volatile bool kernel_stacks_only = false;

struct table_key {
	__u64 kernel_stack;
	__u64 user_stack;
	__u64 cgroup_id;
	__u32 pid;
	char comm[TASK_COMM_LEN];
	__u32 pad;
};

struct table_value {
	__u64 count;
};

#include "table.bpf.h"
#include "stacks.bpf.h"

SEC("perf_event")
int sample__perf(struct bpf_perf_event_data *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct table_key key = {};
	struct table_value *value;

	if ((sample_count() && !include_idle) || !task_current_wanted())
		return 0;
	key.pid = id >> 32;
	key.cgroup_id = task_current_cgroup_id();
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	if (!user_stacks_only)
		key.kernel_stack = kernel_stack(ctx);
	if (!kernel_stacks_only)
		key.user_stack = user_stack(ctx);
	value = table_find(&key);
	if (value)
		table_add(value, count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
