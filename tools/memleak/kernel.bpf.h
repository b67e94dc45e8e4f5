/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The result of kmalloc(0), and below it NULL, is not memory. */
#define ZERO_SIZE_PTR 16

/* The largest pages have 2^10 of the smallest, 2^13 on arm64. */
#define PAGE_ORDERS 14

static __always_inline int kernel_alloc(void *ctx, __u64 address, __u64 bytes,
					enum function function, __u32 order)
{
	struct held_key key = { .id = address };

	if (address > ZERO_SIZE_PTR && task_current_wanted())
		hold(ctx, &key, bytes, function, order);
	return 0;
}

/* Called for frees by any task. */
static __always_inline int kernel_free(void *ctx, __u64 address, enum function function)
{
	struct held_key key = { .id = address };

	if (address > ZERO_SIZE_PTR)
		release(ctx, &key, function);
	return 0;
}

/*
 * Pages that were allocated together can be freed in parts (split_page). A part is within a larger
 * allocation whose struct page has the same address except for the last bits.
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
	__u64 bytes = page_bytes << order, page = kmem_arg(ctx, 0);

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

KERNEL(kmalloc, kmalloc, kernel_alloc(ctx, kmem_arg(ctx, 1), kmalloc_bytes(ctx), KMALLOC, 0))
KERNEL(kmalloc_node, kmalloc_node, kernel_alloc(ctx, kmem_arg(ctx, 1), kmalloc_bytes(ctx), KMALLOC, 0))
KERNEL(kfree, kfree, kernel_free(ctx, kmem_arg(ctx, 1), KFREE))
KERNEL(cache_alloc, kmem_cache_alloc,
       kernel_alloc(ctx, kmem_arg(ctx, 1), kmem_cache_bytes(ctx), KMEM_CACHE_ALLOC, 0))
KERNEL(cache_alloc_node, kmem_cache_alloc_node,
       kernel_alloc(ctx, kmem_arg(ctx, 1), kmem_cache_bytes(ctx), KMEM_CACHE_ALLOC, 0))
KERNEL(cache_free, kmem_cache_free, kernel_free(ctx, kmem_arg(ctx, 1), KMEM_CACHE_FREE))
KERNEL(page_alloc, mm_page_alloc,
       kernel_alloc(ctx, kmem_arg(ctx, 0), page_bytes << (__u32)ctx[1], PAGE_ALLOC, ctx[1]))
KERNEL(page_free, mm_page_free, pages_free(ctx, ctx[1]))
KERNEL(percpu_alloc, percpu_alloc_percpu,
       kernel_alloc(ctx, percpu_pointer(ctx), percpu_bytes(ctx), PERCPU_ALLOC, 0))
KERNEL(percpu_free, percpu_free_percpu, kernel_free(ctx, kmem_arg(ctx, 2), PERCPU_FREE))

/*
 * Two ways of freeing without a tracepoint. Objects can be freed in bulk; kfree_rcu frees objects
 * later, or keeps them for the next allocation.
 */
#define BULK_MAX 512 /* number of pointers in a page of kfree_rcu */

static __always_inline int bulk_free(void *ctx, __u64 n, __u64 *objects)
{
	struct held_value value;
	struct held_key key = {};

	for (__u32 i = 0; i < BULK_MAX; i++) {
		if (i >= n || bpf_probe_read_kernel(&key.id, sizeof(key.id), &objects[i]))
			break;
		if (held_take(&key, &value) && targ_trace)
			trace(ctx, key.id, value.bytes, KMEM_CACHE_FREE);
	}
	return 0;
}

/* Older kernels pass the offset of the rcu_head in the object, as 5.10 does. */
static __always_inline int rcu_free(void *ctx, __u64 head, __u64 object)
{
	const __u64 max_distance = 4096;
	struct held_key key = { .id = object < max_distance ? head - object : object };
	struct held_value value;

	if (held_take(&key, &value) && targ_trace)
		trace(ctx, key.id, value.bytes, KFREE);
	return 0;
}

SEC("fentry/kmem_cache_free_bulk")
int bulk_free__fentry(__u64 *ctx)
{
	return UNINTERRUPTED(bulk_free(ctx, kmem_arg(ctx, 1), (void *)kmem_arg(ctx, 2)));
}

SEC("kprobe/kmem_cache_free_bulk")
int bulk_free__kprobe(struct pt_regs *ctx)
{
	return UNINTERRUPTED(bulk_free(ctx, PT_REGS_PARM2(ctx), (void *)PT_REGS_PARM3(ctx)));
}

SEC("fentry/kvfree_call_rcu")
int rcu_free__fentry(__u64 *ctx)
{
	return UNINTERRUPTED(rcu_free(ctx, kmem_arg(ctx, 0), kmem_arg(ctx, 1)));
}

SEC("kprobe/kvfree_call_rcu")
int rcu_free__kprobe(struct pt_regs *ctx)
{
	return UNINTERRUPTED(rcu_free(ctx, PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx)));
}
