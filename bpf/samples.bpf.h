/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SAMPLES_BPF_H
#define __SAMPLES_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "map.bpf.h"

/*
 * The samples of each CPU since the start. User space compares them with the number of samples that
 * were due: the kernel takes fewer if the timer expires too late, or if it throttles the event, on
 * an idle CPU until the next tick, and none while another BPF program of this kind runs.
 */
struct cpu_samples {
	__u64 taken;
	__u64 idle; /* of these, samples in which the CPU was idle */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_samples);
} cpu_samples SEC(".maps") USER_SPACE;

/* Counts a sample, and returns whether the CPU is idle: the idle task has TID 0. */
static __always_inline bool sample_count(void)
{
	__u32 zero = 0;
	struct cpu_samples *samples = bpf_map_lookup_elem(&cpu_samples, &zero);
	bool idle = !bpf_get_current_pid_tgid();

	if (samples) {
		samples->taken++;
		samples->idle += idle;
	}
	return idle;
}

#endif
