// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "command.bpf.h"
#include "compat.bpf.h"
#include "frame.bpf.h"
#include "kmem.bpf.h"
#include "return.bpf.h"
#include "stackid.bpf.h"
#include "task.bpf.h"

/* Only allocations of these sizes, each with a probability of 1/N. */
const volatile __u64 targ_min_bytes = 0;
const volatile __u64 targ_max_bytes = ~0ULL;
const volatile __u32 targ_sample = 1;
/* Send each allocation and each free, without stacks. */
const volatile bool targ_trace = false;
/* Page size in bytes. */
const volatile __u64 page_bytes = 4096;

/* User space uses these numbers. */
enum function {
	MALLOC,
	CALLOC,
	REALLOC,
	REALLOCARRAY,
	POSIX_MEMALIGN,
	ALIGNED_ALLOC,
	MEMALIGN,
	VALLOC,
	PVALLOC,
	NEW_OPERATOR,
	MMAP,
	MREMAP,
	KMALLOC,
	KMEM_CACHE_ALLOC,
	PAGE_ALLOC,
	PERCPU_ALLOC,
	FREE,
	MUNMAP,
	KFREE,
	KMEM_CACHE_FREE,
	PAGE_FREE,
	PERCPU_FREE,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum function *function_type __attribute__((unused));

struct held_value {
	__u64 bytes;
	__u64 time_ns;
	stack_id_t stack;
	__u32 function;
	__u32 order; /* of pages, at allocation */
};

struct counters {
	__u64 unseen_frees; /* frees of memory whose allocation was not observed or not wanted */
	__u64 missed_frees; /* allocations at an address whose previous free was not observed */
	__u64 unseen_calls; /* returns of calls whose entry was not observed */
};

#include "counters.bpf.h"
#include "held.bpf.h"
#include "stacks.bpf.h"

struct event {
	struct task_info task;
	__u64 address;
	__u64 bytes;
	__u32 function;
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline void trace(void *ctx, __u64 address, __u64 bytes, __u32 function)
{
	struct event e = { .address = address, .bytes = bytes, .function = function };

	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
}

static __always_inline bool bytes_wanted(__u64 bytes)
{
	if (bytes < targ_min_bytes || bytes > targ_max_bytes)
		return false;
	return targ_sample <= 1 || bpf_get_prandom_u32() % targ_sample == 0;
}

/* hold stores an allocation until it is freed, if it is wanted. The key's id is its address. */
static __always_inline bool hold(void *ctx, const struct held_key *key, __u64 bytes,
				 enum function function, __u32 order)
{
	struct held_value value = { .bytes = bytes, .function = function, .order = order };

	if (!bytes_wanted(bytes))
		return false;
	value.time_ns = bpf_ktime_get_boot_ns();
	if (targ_trace)
		trace(ctx, key->id, bytes, function);
	else
		value.stack = key->pid ? user_stack(ctx) : kernel_stack(ctx);
	if (held_put(key, &value))
		counter_add(missed_frees);
	return true;
}

static __always_inline void release(void *ctx, const struct held_key *key, enum function function)
{
	struct held_value value;

	if (!held_take(key, &value))
		counter_add(unseen_frees);
	else if (targ_trace)
		trace(ctx, key->id, value.bytes, function);
}

#include "mapping.bpf.h"
#include "user.bpf.h"
#include "kernel.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
