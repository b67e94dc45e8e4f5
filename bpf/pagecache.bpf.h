/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PAGECACHE_BPF_H
#define __PAGECACHE_BPF_H

#include "compat.bpf.h"
#include "task.bpf.h"

/*
 * Operations of the page cache. The tool defines CACHE_COUNT(member), which adds one to a member:
 * accessed, added, dirtied or dirties. The arguments of the hooks are not read, because they
 * changed from pages to folios.
 */
#define CACHE_PROGRAM_IF(only, name, section, member)  \
	SEC(section)                                   \
	int name(void *ctx)                            \
	{                                              \
		only;                                  \
		if (task_current_wanted())             \
			CACHE_COUNT(member);           \
		return 0;                              \
	}
#define CACHE_PROGRAM(name, section, member) CACHE_PROGRAM_IF(, name, section, member)

/* Folios from 5.16 on (76580b6529db); the function for pages is then no longer always called. */
#define REJECT_IF_FOLIOS REJECT_IF_TYPE_EXISTS(struct folio)

CACHE_PROGRAM(accessed__fentry, "fentry/folio_mark_accessed", accessed)
CACHE_PROGRAM(accessed__kprobe, "kprobe/folio_mark_accessed", accessed)
CACHE_PROGRAM_IF(REJECT_IF_FOLIOS, accessed__oldfentry, "fentry/mark_page_accessed", accessed)
CACHE_PROGRAM_IF(REJECT_IF_FOLIOS, accessed__oldkprobe, "kprobe/mark_page_accessed", accessed)

/* Called by add_to_page_cache_lru, filemap_add_folio from 5.16 on. */
CACHE_PROGRAM(added__btf, "tp_btf/mm_filemap_add_to_page_cache", added)
CACHE_PROGRAM(added__raw, "raw_tp/mm_filemap_add_to_page_cache", added)

/* Called by account_page_dirtied, folio_account_dirtied from 5.15 on (203a31516616). */
CACHE_PROGRAM(dirtied__btf, "tp_btf/writeback_dirty_folio", dirtied)
CACHE_PROGRAM(dirtied__raw, "raw_tp/writeback_dirty_folio", dirtied)
CACHE_PROGRAM(dirtied__oldbtf, "tp_btf/writeback_dirty_page", dirtied)
CACHE_PROGRAM(dirtied__oldraw, "raw_tp/writeback_dirty_page", dirtied)

/* Called by mark_buffer_dirty. */
CACHE_PROGRAM(dirties__btf, "tp_btf/block_dirty_buffer", dirties)
CACHE_PROGRAM(dirties__raw, "raw_tp/block_dirty_buffer", dirties)

#endif
