// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "task.bpf.h"

struct totals {
	__u64 accessed;
	__u64 added;
	__u64 dirtied;
	__u64 dirties;
};

#include "totals.bpf.h"

/* The arguments of the hooks are not read, because they changed from pages to folios. */
#define PROGRAM_IF(only, name, section, member)  \
	SEC(section)                             \
	int name(void *ctx)                      \
	{                                        \
		only;                            \
		if (task_current_wanted())       \
			totals_add(member, 1);   \
		return 0;                        \
	}
#define PROGRAM(name, section, member) PROGRAM_IF(, name, section, member)

/* Folios from 5.16 on (76580b6529db); the function for pages is then no longer always called. */
#define REJECT_IF_FOLIOS REJECT_IF_TYPE_EXISTS(struct folio)

PROGRAM(accessed__fentry, "fentry/folio_mark_accessed", accessed)
PROGRAM(accessed__kprobe, "kprobe/folio_mark_accessed", accessed)
PROGRAM_IF(REJECT_IF_FOLIOS, accessed__oldfentry, "fentry/mark_page_accessed", accessed)
PROGRAM_IF(REJECT_IF_FOLIOS, accessed__oldkprobe, "kprobe/mark_page_accessed", accessed)

/* Called by add_to_page_cache_lru, filemap_add_folio from 5.16 on. */
PROGRAM(added__btf, "tp_btf/mm_filemap_add_to_page_cache", added)
PROGRAM(added__raw, "raw_tp/mm_filemap_add_to_page_cache", added)

/* Called by account_page_dirtied, folio_account_dirtied from 5.15 on (203a31516616). */
PROGRAM(dirtied__btf, "tp_btf/writeback_dirty_folio", dirtied)
PROGRAM(dirtied__raw, "raw_tp/writeback_dirty_folio", dirtied)
PROGRAM(dirtied__oldbtf, "tp_btf/writeback_dirty_page", dirtied)
PROGRAM(dirtied__oldraw, "raw_tp/writeback_dirty_page", dirtied)

/* Called by mark_buffer_dirty. */
PROGRAM(dirties__btf, "tp_btf/block_dirty_buffer", dirties)
PROGRAM(dirties__raw, "raw_tp/block_dirty_buffer", dirties)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
