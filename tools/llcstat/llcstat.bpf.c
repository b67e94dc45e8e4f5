// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/* Group by thread too. */
const volatile bool by_tid = false;

struct table_key {
	__u64 cgroup_id;
	__u32 pid;
	__u32 tid;
	__u32 cpu;
	char comm[TASK_COMM_LEN];
	__u32 pad;
};

struct table_value {
	__u64 references;
	__u64 misses;
};

#include "table.bpf.h"

/* The entry of the current task, which can be the idle task; NULL if it is not wanted. */
static __always_inline struct table_value *current_entry(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct table_key key = {};

	if (!task_current_wanted())
		return NULL;
	key.pid = id >> 32;
	if (by_tid)
		key.tid = id;
	key.cpu = bpf_get_smp_processor_id();
	key.cgroup_id = task_current_cgroup_id();
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	return table_find(&key);
}

/* A sample stands for as many events as its period. */
SEC("perf_event")
int references__perf(struct bpf_perf_event_data *ctx)
{
	struct table_value *value = current_entry();

	if (value)
		table_add(value, references, ctx->sample_period);
	return 0;
}

SEC("perf_event")
int misses__perf(struct bpf_perf_event_data *ctx)
{
	struct table_value *value = current_entry();

	if (value)
		table_add(value, misses, ctx->sample_period);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
