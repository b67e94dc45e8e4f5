// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "kmem.bpf.h"
#include "task.bpf.h"

#define CACHE_NAME_LEN 64

struct table_key {
	__u64 cache; /* address: comparing names would cost more than the rest */
};

struct table_value {
	__u64 allocs;
	__u64 bytes;
	char name[CACHE_NAME_LEN];
};

#include "table.bpf.h"

/*
 * The caches of SLUB have a size, including metadata; those of SLAB, which was removed in 6.8
 * (16a1d968358a), too.
 */
static __always_inline int count(struct kmem_cache *cache)
{
	struct table_key key = { .cache = (__u64)cache };
	struct table_value *value;

	if (!task_current_wanted())
		return 0;
	value = table_find(&key);
	if (!value)
		return 0;
	if (!value->name[0])
		bpf_probe_read_kernel_str(value->name, sizeof(value->name), BPF_CORE_READ(cache, name));
	table_add(value, allocs, 1);
	table_add(value, bytes, BPF_CORE_READ(cache, size));
	return 0;
}

/* An allocation that fails returns NULL. */
static __always_inline int handle_alloc(__u64 *ctx)
{
	if (!kmem_arg(ctx, 1))
		return 0;
	return count((void *)kmem_arg(ctx, 2));
}

/* The tracepoints have the cache from 5.19 on (b347aa7b5747). */
#define REJECT_WITHOUT_CACHE REJECT_IF_TYPE_EXISTS(btf_trace_kmem_cache_alloc___size)
#define REJECT_WITH_CACHE                                                             \
	do {                                                                          \
		if (!bpf_core_type_exists(btf_trace_kmem_cache_alloc___size)) {       \
			volatile __u32 offset = nonexistent_offset();                 \
                                                                                      \
			(void)offset;                                                 \
		}                                                                     \
	} while (0)

#define TRACEPOINT(hook, kind, section)                  \
	SEC(section)                                     \
	int hook##__##kind(__u64 *ctx)                   \
	{                                                \
		REJECT_WITHOUT_CACHE;                    \
		return UNINTERRUPTED(handle_alloc(ctx)); \
	}

TRACEPOINT(alloc, btf, "tp_btf/kmem_cache_alloc")
TRACEPOINT(alloc, raw, "raw_tp/kmem_cache_alloc")
TRACEPOINT(alloc_node, btf, "tp_btf/kmem_cache_alloc_node")
TRACEPOINT(alloc_node, raw, "raw_tp/kmem_cache_alloc_node")

/* Functions that return an object of their first argument, a cache. */
SEC("fexit/kmem_cache_alloc")
int BPF_PROG(alloc__oldfexit, struct kmem_cache *cache, gfp_t flags, void *object)
{
	REJECT_WITH_CACHE;
	return object ? UNINTERRUPTED(count(cache)) : 0;
}

SEC("fexit/kmem_cache_alloc_node")
int BPF_PROG(alloc_node__oldfexit, struct kmem_cache *cache, gfp_t flags, int node, void *object)
{
	REJECT_WITH_CACHE;
	return object ? UNINTERRUPTED(count(cache)) : 0;
}

SEC("kprobe/kmem_cache_alloc")
int BPF_KPROBE(alloc__oldkprobe, struct kmem_cache *cache)
{
	REJECT_WITH_CACHE;
	return UNINTERRUPTED(count(cache));
}

SEC("kprobe/kmem_cache_alloc_node")
int BPF_KPROBE(alloc_node__oldkprobe, struct kmem_cache *cache)
{
	REJECT_WITH_CACHE;
	return UNINTERRUPTED(count(cache));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
