// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "loop.bpf.h"

#define NAME_LEN 32

/* Buffers of a list that are read. virtio-blk has at most 256 by default, virtio-net 19. */
#define BUFFERS_MAX 512

/* Lists of a call that are read. Drivers use up to 8. */
#define LISTS_MAX 16

/* In scatterlist.page_link. */
#define SG_CHAIN 1UL
#define SG_END 2UL

struct table_key {
	__u64 queue; /* address: comparing names would cost more than the rest */
};

struct table_value {
	__u64 in_buffers;
	__u64 out_buffers;
	__u64 in_bytes;
	__u64 out_bytes;
	char driver[NAME_LEN];
	char device[NAME_LEN];
	char name[NAME_LEN];
};

#include "table.bpf.h"

struct counters {
	__u64 truncated; /* calls with more lists or buffers than are read; lost (unobserved) */
};

#include "counters.bpf.h"

/* The number of buffers and their bytes, in one number: global functions return no structs. */
#define BYTES_BITS 48
#define SUM_BUFFERS(sum) ((sum) >> BYTES_BITS)
#define SUM_BYTES(sum) ((sum) & ((1ULL << BYTES_BITS) - 1))

/* The next entry of the list, NULL at its end. Arrays of entries can be chained. */
static __always_inline struct scatterlist *next_entry(struct scatterlist *sg)
{
	__u64 link = BPF_CORE_READ(sg, page_link);

	if (link & SG_END)
		return NULL;
	sg++;
	link = BPF_CORE_READ(sg, page_link);
	return link & SG_CHAIN ? (void *)(link & ~(SG_CHAIN | SG_END)) : sg;
}

/* The state of a walk along a list. */
struct walk {
	struct scatterlist *sg;
	__u64 sum;
};

/*
 * A helper copies the state of each step, so that the verifier does not know its values: otherwise
 * it would follow all combinations of branches.
 */
static __always_inline bool list_step(void *state, __u32 i)
{
	struct walk *w = state, next = {};
	struct scatterlist *sg = w->sg;

	if (!sg)
		return false;
	next.sum = w->sum + (1ULL << BYTES_BITS) + BPF_CORE_READ(sg, length);
	next.sg = next_entry(sg);
	bpf_probe_read_kernel(w, sizeof(*w), &next);
	return true;
}

/* A global function, so that the verifier checks it once, and not for each list of each caller. */
__noinline __u64 list_sum(__u64 first)
{
	struct walk w = { .sg = (void *)first };

	loop_while(BUFFERS_MAX, list_step, &w);
	if (w.sg) {
		counter_add(truncated);
		lost_add(unobserved);
	}
	return w.sum;
}

static __always_inline struct table_value *find_queue(struct virtqueue *vq)
{
	struct table_key key = { .queue = (__u64)vq };
	struct table_value *value = table_find(&key);
	struct virtio_device *vdev;
	const char *name;

	if (!value || value->driver[0])
		return value;
	vdev = BPF_CORE_READ(vq, vdev);
	bpf_probe_read_kernel_str(value->driver, sizeof(value->driver),
				  BPF_CORE_READ(vdev, dev.driver, name));
	name = BPF_CORE_READ(vdev, dev.init_name) ?: BPF_CORE_READ(vdev, dev.kobj.name);
	bpf_probe_read_kernel_str(value->device, sizeof(value->device), name);
	bpf_probe_read_kernel_str(value->name, sizeof(value->name), BPF_CORE_READ(vq, name));
	return value;
}

static __always_inline void count_out(struct table_value *value, __u64 sum)
{
	table_add(value, out_buffers, SUM_BUFFERS(sum));
	table_add(value, out_bytes, SUM_BYTES(sum));
}

static __always_inline void count_in(struct table_value *value, __u64 sum)
{
	table_add(value, in_buffers, SUM_BUFFERS(sum));
	table_add(value, in_bytes, SUM_BYTES(sum));
}

/* The lists that the device reads (out) come first. */
static __always_inline int handle_lists(struct virtqueue *vq, __u64 sgs, __u32 outs, __u32 ins)
{
	struct table_value *value = find_queue(vq);
	__u64 sg, sum;

	if (!value)
		return 0;
	for (__u32 i = 0; i < LISTS_MAX; i++) {
		if (i >= outs + ins)
			return 0;
		if (bpf_probe_read_kernel(&sg, sizeof(sg), (void *)(sgs + i * sizeof(sg))))
			break;
		sum = list_sum(sg);
		if (i < outs)
			count_out(value, sum);
		else
			count_in(value, sum);
	}
	if (outs + ins != LISTS_MAX) {
		counter_add(truncated);
		lost_add(unobserved);
	}
	return 0;
}

static __always_inline int handle_list(struct virtqueue *vq, __u64 sg, bool is_in)
{
	struct table_value *value = find_queue(vq);
	__u64 sum;

	if (!value)
		return 0;
	sum = list_sum(sg);
	if (is_in)
		count_in(value, sum);
	else
		count_out(value, sum);
	return 0;
}

/* Returns an argument as a number: global functions take no pointers of kernel types. */
static __always_inline __u64 number(__u64 *ctx, int nr)
{
	__u64 arg = 0;

	bpf_probe_read_kernel(&arg, sizeof(arg), &ctx[nr]);
	return arg;
}

#define PROGRAMS(hook, function, by_fentry, by_kprobe)  \
	SEC("fentry/" #function)                        \
	int hook##__fentry(__u64 *ctx)                  \
	{                                               \
		return UNINTERRUPTED(by_fentry);        \
	}                                               \
	SEC("kprobe/" #function)                        \
	int hook##__kprobe(struct pt_regs *ctx)         \
	{                                               \
		return UNINTERRUPTED(by_kprobe);        \
	}

#define LIST_PROGRAMS(hook, function, is_in)                                   \
	PROGRAMS(hook, function, handle_list((void *)ctx[0], number(ctx, 1), is_in),   \
		 handle_list((void *)PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), is_in))

PROGRAMS(lists, virtqueue_add_sgs, handle_lists((void *)ctx[0], number(ctx, 1), ctx[2], ctx[3]),
	 handle_lists((void *)PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx)))
LIST_PROGRAMS(out, virtqueue_add_outbuf, false)
LIST_PROGRAMS(in, virtqueue_add_inbuf, true)
LIST_PROGRAMS(ctxin, virtqueue_add_inbuf_ctx, true)
/* Of newer kernels, for buffers that the driver has mapped itself. */
LIST_PROGRAMS(mappedout, virtqueue_add_outbuf_premapped, false)
LIST_PROGRAMS(mappedin, virtqueue_add_inbuf_premapped, true)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
