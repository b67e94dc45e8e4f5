// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

#define CPUS_MAX 1024

/* Group histograms by these; the other members of the key are 0. */
const volatile bool by_comm = false;
const volatile bool by_cpu = false;

/* The frequency of each CPU in kHz. User space sets those at the start, 0 if unknown. */
__u32 cpu_khz[CPUS_MAX] = {};

struct hist_key {
	char comm[TASK_COMM_LEN]; /* of the thread that runs */
	__u32 cpu;
};

struct counters {
	__u64 unknown; /* samples of CPUs with an unknown frequency */
};

#include "counters.bpf.h"
#include "hist.bpf.h"

static __always_inline int set_frequency(__u32 khz, __u32 cpu)
{
	if (cpu < CPUS_MAX)
		cpu_khz[cpu] = khz;
	return 0;
}

SEC("tp_btf/cpu_frequency")
int BPF_PROG(frequency__btf, unsigned int khz, unsigned int cpu)
{
	return set_frequency(khz, cpu);
}

SEC("raw_tp/cpu_frequency")
int BPF_PROG(frequency__raw, unsigned int khz, unsigned int cpu)
{
	return set_frequency(khz, cpu);
}

/* Idle tasks (TID 0) count only if histograms are neither of names nor of wanted tasks. */
SEC("perf_event")
int sample__perf(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct hist_key key = {};

	if (!bpf_get_current_pid_tgid() && (by_comm || task_filter))
		return 0;
	if (!task_current_wanted())
		return 0;
	if (cpu >= CPUS_MAX || !cpu_khz[cpu]) {
		counter_add(unknown);
		return 0;
	}
	if (by_comm)
		bpf_get_current_comm(key.comm, sizeof(key.comm));
	if (by_cpu)
		key.cpu = cpu;
	hist_record(&key, cpu_khz[cpu] / 1000);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
