// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "runqueue.bpf.h"
#include "samples.bpf.h"
#include "task.bpf.h"

/* Count samples with waiting tasks, instead of a histogram. */
const volatile bool targ_occupancy = false;
/* Separately for each CPU. */
const volatile bool by_cpu = false;

struct hist_key {
	__u32 cpu;
};

struct table_key {
	__u32 cpu;
};

struct table_value {
	__u64 samples;
	__u64 queued; /* samples with a waiting task */
};

#include "hist.bpf.h"
#include "table.bpf.h"

static __always_inline void count_occupancy(__u32 cpu, __u32 length)
{
	struct table_key key = { .cpu = cpu };
	struct table_value *value = table_find(&key);

	if (!value)
		return;
	table_add(value, samples, 1);
	if (length)
		table_add(value, queued, 1);
}

SEC("perf_event")
int sample__perf(void *ctx)
{
	__u32 cpu = by_cpu ? bpf_get_smp_processor_id() : 0;
	__u32 length = runqueue_runnable(runqueue_current());
	struct hist_key key = { .cpu = cpu };

	/* The task that runs does not wait. The idle task is not on the run queue. */
	if (!sample_count() && length)
		length--;
	if (targ_occupancy)
		count_occupancy(cpu, length);
	else
		hist_record(&key, length);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
