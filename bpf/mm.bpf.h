/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __MM_BPF_H
#define __MM_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "percpu.bpf.h"

/* mm_struct.rss_stat is an array of percpu_counter from 6.2 on (f1a7941243c1). */
struct mm_rss_stat___atomic {
	atomic_long_t count[4];
};

struct mm_struct___atomic {
	struct mm_rss_stat___atomic rss_stat;
};

/* mm_pages returns one of the page counts of a process (MM_FILEPAGES, …), at least 0. */
static __always_inline __u64 mm_pages(struct mm_struct *mm, int member)
{
	struct mm_struct___atomic *old = (void *)mm;
	__s64 n;

	if (bpf_core_field_exists(mm->rss_stat[0].counters))
		n = percpu_sum(__builtin_preserve_access_index(&mm->rss_stat[member]));
	else
		n = BPF_CORE_READ(old, rss_stat.count[member].counter);
	return n > 0 ? n : 0;
}

#endif
