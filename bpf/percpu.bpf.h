/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PERCPU_BPF_H
#define __PERCPU_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "lost.bpf.h"

#define PERCPU_MAX 1024

/* CPUs that there may be; user space sets it. */
const volatile __u32 percpu_nr = 1;
/* Where the kernel has __per_cpu_offset; user space sets it where it is needed. */
const volatile __u64 percpu_offsets = 0;

/* A pointer as a number to the verifier. */
static __always_inline __u64 address_of(const void *p)
{
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &p);
	return address;
}

/*
 * Where a CPU's copies of variables begin: the distance of one that is at hand. Before
 * 5.19 (07343110b293) there is none, and the kernel's own table has it. It is 0 where it
 * cannot be known.
 */
static __always_inline __u64 cpu_offset(__u32 cpu)
{
	struct bpf_array *array = (void *)address_of(&lost);
	void *here, *base = NULL;
	__u64 offset = 0;
	__u32 zero = 0;

	if (percpu_offsets) {
		bpf_probe_read_kernel(&offset, sizeof(offset),
				      (void *)(percpu_offsets + cpu * sizeof(offset)));
		return offset;
	}
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_map_lookup_percpu_elem))
		return 0;
	here = bpf_map_lookup_percpu_elem(&lost, &zero, cpu);
	bpf_probe_read_kernel(&base, sizeof(base),
			      (void *)array + bpf_core_field_offset(struct bpf_array, pptrs));
	return here && base ? address_of(here) - (__u64)base : 0;
}

/* percpu_sum is a counter with what the CPUs have not yet added to it. */
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
