/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __KMEM_BPF_H
#define __KMEM_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/*
 * Arguments of the tracepoints of the kernel's allocators, kmem:* and percpu:*, from kernel 5.10
 * on.
 */

/*
 * From 5.19 to 6.0 kmalloc passes the cache before the sizes. Before 6.1 kmem_cache_alloc has the
 * same arguments, and both have variants for NUMA nodes. From 6.1 on (2c1d697fb8ba, 11e9734bcb6a)
 * there are no variants, and the size is read from the cache.
 */
typedef void (*btf_trace_kmalloc___cache)(void *, unsigned long, const void *, struct kmem_cache *,
					  size_t, size_t, gfp_t);
typedef void (*btf_trace_kmem_cache_alloc___size)(void *, unsigned long, const void *, size_t,
						  size_t, gfp_t);
typedef void (*btf_trace_kmem_cache_alloc___cache)(void *, unsigned long, const void *,
						   struct kmem_cache *, size_t, size_t, gfp_t);

/*
 * Returns an argument as a number. In older kernels, such as 5.10, tp_btf programs cannot access
 * pointers to const void, and in no kernel can they calculate with pointers. All arguments can be
 * read as memory.
 */
static __always_inline __u64 kmem_arg(__u64 *ctx, int nr)
{
	__u64 arg = 0;

	bpf_probe_read_kernel(&arg, sizeof(arg), &ctx[nr]);
	return arg;
}

#define kmem_arg_if(ctx, type, then, otherwise) \
	kmem_arg(ctx, bpf_core_type_exists(type) ? (then) : (otherwise))

/* Requested bytes. */
static __always_inline __u64 kmalloc_bytes(__u64 *ctx)
{
	return kmem_arg_if(ctx, btf_trace_kmalloc___cache, 3, 2);
}

static __always_inline __u64 kmem_cache_bytes(__u64 *ctx)
{
	struct kmem_cache *cache;

	if (bpf_core_type_exists(btf_trace_kmem_cache_alloc___size) ||
	    bpf_core_type_exists(btf_trace_kmem_cache_alloc___cache))
		return kmem_arg_if(ctx, btf_trace_kmem_cache_alloc___cache, 3, 2);
	cache = (void *)kmem_arg(ctx, 2);
	return BPF_CORE_READ(cache, object_size);
}

/* From 5.19 on (f67bed134a05) the caller is the first argument. */
typedef void (*btf_trace_percpu_alloc_percpu___old)(void *, bool, bool, size_t, size_t, void *, int,
						    void *);

static __always_inline __u64 percpu_bytes(__u64 *ctx)
{
	return kmem_arg_if(ctx, btf_trace_percpu_alloc_percpu___old, 2, 3);
}

static __always_inline __u64 percpu_pointer(__u64 *ctx)
{
	return kmem_arg_if(ctx, btf_trace_percpu_alloc_percpu___old, 6, 7);
}

#endif
