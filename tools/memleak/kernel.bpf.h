/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* What kmalloc(0) returns, and below that NULL, is no memory. */
#define ZERO_SIZE_PTR 16

/* The largest pages are 2^10 of the smallest, 2^13 on arm64. */
#define PAGE_ORDERS 14

static __always_inline int kernel_alloc(void *ctx, __u64 address, __u64 bytes,
					enum function function, __u32 order)
{
	struct held_key key = { .id = address };

	if (address > ZERO_SIZE_PTR && task_current_wanted())
		hold(ctx, &key, bytes, function, order);
	return 0;
}

/* Whoever it is that frees. */
static __always_inline int kernel_free(void *ctx, __u64 address, enum function function)
{
	struct held_key key = { .id = address };

	if (address > ZERO_SIZE_PTR)
		release(ctx, &key, function);
	return 0;
}

/*
 * Pages that were allocated as one may be freed in parts (split_page). A part lies in a
 * larger one whose struct page has the same address but for the last bits.
 */
static __always_inline struct held_value *pages_find(__u64 page, struct held_key *key)
{
	__u64 size = bpf_core_type_size(struct page);
	struct held_value *value;

	for (__u32 order = 0; order < PAGE_ORDERS; order++) {
		key->id = page & -(size << order);
		value = bpf_map_lookup_elem(&held, key);
		if (value && value->order >= order)
			return value;
		if (size & (size - 1))
			break;
	}
	key->id = page;
	return NULL;
}

static __always_inline int pages_free(__u64 *ctx, __u32 order)
{
	struct held_key key = {};
	struct held_value *value;
	__u64 bytes = page_bytes << order, page = 0;

	/* As a number to the verifier, which allows no sums with pointers. */
	bpf_probe_read_kernel(&page, sizeof(page), &ctx[0]);
	value = pages_find(page, &key);
	if (!value || value->bytes <= bytes)
		return kernel_free(ctx, key.id, PAGE_FREE);
	if (targ_trace)
		trace(ctx, page, bytes, PAGE_FREE);
	__sync_fetch_and_sub(&value->bytes, bytes);
	return 0;
}

#define KERNEL(hook, event, call)         \
	SEC("tp_btf/" #event)             \
	int hook##__btf(__u64 *ctx)       \
	{                                 \
		return UNINTERRUPTED(call); \
	}                                 \
	SEC("raw_tp/" #event)             \
	int hook##__raw(__u64 *ctx)       \
	{                                 \
		return UNINTERRUPTED(call); \
	}

KERNEL(kmalloc, kmalloc, kernel_alloc(ctx, ctx[1], kmalloc_bytes(ctx), KMALLOC, 0))
KERNEL(kmalloc_node, kmalloc_node, kernel_alloc(ctx, ctx[1], kmalloc_bytes(ctx), KMALLOC, 0))
KERNEL(kfree, kfree, kernel_free(ctx, ctx[1], KFREE))
KERNEL(cache_alloc, kmem_cache_alloc,
       kernel_alloc(ctx, ctx[1], kmem_cache_bytes(ctx), KMEM_CACHE_ALLOC, 0))
KERNEL(cache_alloc_node, kmem_cache_alloc_node,
       kernel_alloc(ctx, ctx[1], kmem_cache_bytes(ctx), KMEM_CACHE_ALLOC, 0))
KERNEL(cache_free, kmem_cache_free, kernel_free(ctx, ctx[1], KMEM_CACHE_FREE))
KERNEL(page_alloc, mm_page_alloc,
       kernel_alloc(ctx, ctx[0], page_bytes << (__u32)ctx[1], PAGE_ALLOC, ctx[1]))
KERNEL(page_free, mm_page_free, pages_free(ctx, ctx[1]))
KERNEL(percpu_alloc, percpu_alloc_percpu,
       kernel_alloc(ctx, percpu_pointer(ctx), percpu_bytes(ctx), PERCPU_ALLOC, 0))
KERNEL(percpu_free, percpu_free_percpu, kernel_free(ctx, ctx[2], PERCPU_FREE))
