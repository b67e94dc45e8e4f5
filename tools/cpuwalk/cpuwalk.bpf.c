// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "samples.bpf.h"
#include "task.bpf.h"

struct table_key {
	__u32 cpu;
};

struct table_value {
	__u64 samples;
	__u64 busy; /* samples in which a task ran that is wanted */
	__u64 idle;
	__u64 missed; /* set by user space */
};

#include "table.bpf.h"

SEC("perf_event")
int sample__perf(void *ctx)
{
	struct table_key key = { .cpu = bpf_get_smp_processor_id() };
	struct table_value *value = table_find(&key);
	bool idle = sample_count();

	if (!value)
		return 0;
	table_add(value, samples, 1);
	if (idle)
		table_add(value, idle, 1);
	else if (task_current_wanted())
		table_add(value, busy, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
