/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PERCPU_BPF_H
#define __PERCPU_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "lost.bpf.h"

#define PERCPU_MAX 1024

/* Number of possible CPUs, set by user space. */
const volatile __u32 percpu_nr = 1;
/* Address of the kernel's table __per_cpu_offset, set by user space if it is needed. */
const volatile __u64 percpu_offsets = 0;

/* Returns a pointer as a number for the verifier. */
static __always_inline __u64 pointer_address(const void *p)
{
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &p);
	return address;
}

/*
 * The offset of a CPU's copies of per-CPU variables, 0 if unknown. It is computed from the address
 * of a copy of a map value. Before 5.19 (07343110b293) no helper returns that, and the kernel's
 * table is read.
 */
static __always_inline __u64 cpu_offset(__u32 cpu)
{
	struct bpf_array *array = (void *)pointer_address(&lost);
	void *copy, *base = NULL;
	__u64 offset = 0;
	__u32 zero = 0;

	if (percpu_offsets) {
		bpf_probe_read_kernel(&offset, sizeof(offset),
				      (void *)(percpu_offsets + cpu * sizeof(offset)));
		return offset;
	}
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_map_lookup_percpu_elem))
		return 0;
	copy = bpf_map_lookup_percpu_elem(&lost, &zero, cpu);
	bpf_probe_read_kernel(&base, sizeof(base),
			      (void *)array + bpf_core_field_offset(struct bpf_array, pptrs));
	return copy && base ? pointer_address(copy) - (__u64)base : 0;
}

/* percpu_sum returns a counter, including the parts that CPUs have not added to it yet. */
static __always_inline __s64 percpu_sum(const struct percpu_counter *counter)
{
	__s32 *counters = BPF_CORE_READ(counter, counters);
	__s64 sum = BPF_CORE_READ(counter, count);

	for (__u32 cpu = 0; cpu < PERCPU_MAX; cpu++) {
		__u64 offset;
		__s32 n = 0;

		if (cpu >= percpu_nr)
			break;
		offset = cpu_offset(cpu);
		if (offset && !bpf_probe_read_kernel(&n, sizeof(n), (void *)counters + offset))
			sum += n;
	}
	return sum;
}

#endif
