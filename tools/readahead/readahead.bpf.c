// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "folio.bpf.h"
#include "observing.bpf.h"
#include "task.bpf.h"

const volatile bool by_pid = false;

struct hist_key {
	__u32 pid;
	char comm[TASK_COMM_LEN]; /* of the process */
};

#include "hist.bpf.h"

struct counters {
	__u64 total_pages; /* read ahead */
	__u64 used_pages; /* that were used */
	__u64 removed_pages; /* removed from the page cache before they were used */
	__u64 unused_pages; /* in the page cache at the end, and not used */
};

#include "counters.bpf.h"

/* Threads that read ahead. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct hist_key);
} readers SEC(".maps");

/* A folio, or a page, that was read ahead and not used. */
struct birth {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u32 pages;
	struct hist_key reader;
};

/* Deleted when the folio is used or removed from the page cache. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, __u64); /* address of the folio or page */
	__type(value, struct birth);
} births SEC(".maps");

static __always_inline int handle_begin(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct hist_key key = {};

	if (!observing || !task_current_wanted())
		return 0;
	if (by_pid) {
		key.pid = bpf_get_current_pid_tgid() >> 32;
		BPF_CORE_READ_STR_INTO(&key.comm, task_current(), group_leader, comm);
	}
	if (bpf_map_update_elem(&readers, &tid, &key, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int handle_end(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&readers, &tid);
	return 0;
}

static __always_inline int handle_add(__u64 folio)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct hist_key *reader = bpf_map_lookup_elem(&readers, &tid);
	struct birth birth = {};

	if (!reader)
		return 0;
	birth.ns = bpf_ktime_get_ns();
	birth.pages = folio_pages((void *)folio);
	birth.reader = *reader;
	if (bpf_map_update_elem(&births, &folio, &birth, BPF_ANY))
		lost_add_n(map_full, birth.pages);
	else
		counter_add_n(total_pages, birth.pages);
	return 0;
}

static __always_inline int handle_access(__u64 folio)
{
	struct birth *entry = bpf_map_lookup_elem(&births, &folio);
	struct birth birth;

	if (!entry)
		return 0;
	birth = *entry;
	/* Of two tasks that use the folio at once, the one that deletes the entry counts it. */
	if (bpf_map_delete_elem(&births, &folio))
		return 0;
	counter_add_n(used_pages, birth.pages);
	hist_record_n(&birth.reader, bpf_ktime_get_ns() - birth.ns, birth.pages);
	return 0;
}

static __always_inline int handle_remove(__u64 folio)
{
	struct birth *entry = bpf_map_lookup_elem(&births, &folio);
	__u32 pages;

	if (!entry)
		return 0;
	pages = entry->pages;
	if (!bpf_map_delete_elem(&births, &folio))
		counter_add_n(removed_pages, pages);
	return 0;
}

SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	struct birth *birth = ctx->value;

	if (ctx->key && birth)
		counter_add_n(unused_pages, birth->pages);
	return 0;
}

/*
 * Both functions add pages to the page cache. page_cache_ra_order (5.18, 793917d997df) adds large
 * folios, and calls the other one if it cannot. Until 5.9 the first one had another name.
 */
#define READAHEAD(hook, fentry, kprobe, function) \
	SEC("fentry/" #function)                  \
	int hook##__##fentry##__begin(void *ctx)  \
	{                                         \
		return handle_begin();            \
	}                                         \
	SEC("fexit/" #function)                   \
	int hook##__##fentry##__end(void *ctx)    \
	{                                         \
		return handle_end();              \
	}                                         \
	SEC("kprobe/" #function)                  \
	int hook##__##kprobe##__begin(void *ctx)  \
	{                                         \
		return handle_begin();            \
	}                                         \
	SEC("kretprobe/" #function)               \
	int hook##__##kprobe##__end(void *ctx)    \
	{                                         \
		return handle_end();              \
	}

READAHEAD(readahead, fentry, kprobe, page_cache_ra_unbounded)
READAHEAD(readahead, oldfentry, oldkprobe, page_cache_readahead_unbounded)
READAHEAD(order, fentry, kprobe, page_cache_ra_order)

#define TRACEPOINT(hook, event, call)  \
	SEC("tp_btf/" #event)          \
	int hook##__btf(__u64 *ctx)    \
	{                              \
		return call(ctx[0]);   \
	}                              \
	SEC("raw_tp/" #event)          \
	int hook##__raw(__u64 *ctx)    \
	{                              \
		return call(ctx[0]);   \
	}

TRACEPOINT(add, mm_filemap_add_to_page_cache, handle_add)
TRACEPOINT(remove, mm_filemap_delete_from_page_cache, handle_remove)

/* Folios from 5.16 on (76580b6529db); the function for pages is then no longer always called. */
SEC("fentry/folio_mark_accessed")
int access__fentry(__u64 *ctx)
{
	return handle_access(ctx[0]);
}

SEC("kprobe/folio_mark_accessed")
int access__kprobe(struct pt_regs *ctx)
{
	return handle_access(PT_REGS_PARM1(ctx));
}

SEC("fentry/mark_page_accessed")
int access__oldfentry(__u64 *ctx)
{
	REJECT_IF_TYPE_EXISTS(struct folio);
	return handle_access(ctx[0]);
}

SEC("kprobe/mark_page_accessed")
int access__oldkprobe(struct pt_regs *ctx)
{
	REJECT_IF_TYPE_EXISTS(struct folio);
	return handle_access(PT_REGS_PARM1(ctx));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
