/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PROG_BPF_H
#define __PROG_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "percpu.bpf.h"

/* Statistics of a program, from while the kernel measured run time. */
struct prog_counts {
	__u64 runs;
	__u64 run_ns;
	__u64 misses; /* runs that were skipped, because the program was already running on that CPU */
};

/* Before 5.12 (700d4796ef59) the statistics were in bpf_prog_aux. */
struct bpf_prog_aux___stats {
	struct bpf_prog_stats *stats;
};

static __always_inline struct bpf_prog_stats *prog_stats(struct bpf_prog *prog)
{
	struct bpf_prog_aux___stats *old = (void *)BPF_CORE_READ(prog, aux);

	if (bpf_core_field_exists(prog->stats))
		return BPF_CORE_READ(prog, stats);
	return BPF_CORE_READ(old, stats);
}

/* Before 5.16 (61a0abaee209) the counts were plain numbers; misses are counted from 5.12 on. */
struct bpf_prog_stats___u64 {
	__u64 cnt;
	__u64 nsecs;
	__u64 misses;
} __attribute__((preserve_access_index));

#define STATS_READ_AS(type, addr, member)                                                  \
	bpf_probe_read_kernel(&__n, sizeof(__n),                                           \
			      (void *)(addr) + bpf_core_field_offset(type, member))

/* A CPU's count, an integer of 64 bits in all kernels. */
#define STATS_READ(addr, member)                                                           \
	({                                                                                 \
		__u64 __n = 0;                                                             \
		if (bpf_core_field_exists(struct bpf_prog_stats, member))                  \
			STATS_READ_AS(struct bpf_prog_stats, addr, member);                \
		else if (bpf_core_field_exists(struct bpf_prog_stats___u64, member))       \
			STATS_READ_AS(struct bpf_prog_stats___u64, addr, member);          \
		__n;                                                                       \
	})

/*
 * prog_counts_read adds up the counts of all CPUs, and returns false if they could not be read.
 * stats is the result of prog_stats(); the program may have been freed since.
 */
static __always_inline bool prog_counts_read(struct prog_counts *counts, const void *stats)
{
	bool found = false;

	for (__u32 cpu = 0; cpu < PERCPU_MAX; cpu++) {
		__u64 offset;

		if (cpu >= percpu_nr)
			break;
		offset = cpu_offset(cpu);
		if (!offset || !stats)
			continue;
		found = true;
		counts->runs += STATS_READ(stats + offset, cnt);
		counts->run_ns += STATS_READ(stats + offset, nsecs);
		counts->misses += STATS_READ(stats + offset, misses);
	}
	return found;
}

/* The name of a program's main function from BTF. The program itself has only 15 bytes of it. */
static __always_inline void prog_name(char *name, __u32 size, struct bpf_prog *prog)
{
	struct bpf_func_info *functions = BPF_CORE_READ(prog, aux, func_info);
	struct btf *btf = BPF_CORE_READ(prog, aux, btf);
	struct btf_type **types = BPF_CORE_READ(btf, types), *type = NULL;
	__u32 id = BPF_CORE_READ(functions, type_id), offset;

	bpf_probe_read_kernel(&type, sizeof(type), &types[id]);
	offset = BPF_CORE_READ(type, name_off);
	if (!type || offset >= BPF_CORE_READ(btf, hdr.str_len) ||
	    bpf_probe_read_kernel_str(name, size, BPF_CORE_READ(btf, strings) + offset) <= 1)
		bpf_probe_read_kernel_str(name, size, BPF_CORE_READ(prog, aux)->name);
}

/*
 * Programs, maps and links are files without a directory, with names such as "bpf-prog". bpf_file
 * returns the letter after "bpf-" or "bpf_", or 0 for other files.
 */
static __always_inline char bpf_file(struct file *file)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
	char name[5] = {};

	if (BPF_CORE_READ(dentry, d_parent) != dentry)
		return 0;
	bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(dentry, d_name.name));
	if (name[0] != 'b' || name[1] != 'p' || name[2] != 'f' || (name[3] != '-' && name[3] != '_'))
		return 0;
	return name[4];
}

#endif
