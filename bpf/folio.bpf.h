/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FOLIO_BPF_H
#define __FOLIO_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* From 6.1 (379708ffde1b) to 6.5 */
struct folio___order {
	unsigned char _folio_order;
} __attribute__((preserve_access_index));

/* Until 6.0, in the second page */
struct page___order {
	unsigned char compound_order;
} __attribute__((preserve_access_index));

/* From 6.6 on (ebc1baf5c9b4), in the lowest byte */
struct folio___flags {
	unsigned long _flags_1;
} __attribute__((preserve_access_index));

static __always_inline __u32 folio_order(const void *folio)
{
	const struct folio___flags *flags = folio;
	const struct folio___order *order = folio;
	const struct page___order *second = folio + bpf_core_type_size(struct page);

	if (bpf_core_field_exists(order->_folio_order))
		return BPF_CORE_READ(order, _folio_order);
	if (bpf_core_field_exists(second->compound_order))
		return BPF_CORE_READ(second, compound_order);
	return BPF_CORE_READ(flags, _flags_1) & 0xff;
}

/*
 * The number of pages of a folio, or of a page until 5.15. The flags are its first member, whose
 * type changed in 6.18.
 */
static __always_inline __u32 folio_pages(const void *folio)
{
	__u64 flags = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), folio);
	if (!(flags & 1ULL << bpf_core_enum_value(enum pageflags, PG_head)))
		return 1;
	return 1U << (folio_order(folio) & 31);
}

#endif
