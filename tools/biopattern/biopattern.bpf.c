// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "task.bpf.h"

struct io_owner {
};

#include "rq.bpf.h"

struct table_key {
	__u32 dev;
};

struct table_value {
	__u64 ios;
	__u64 sequential;
	__u64 random;
	__u64 bytes;
};

#include "table.bpf.h"

/*
 * The sector after the last request of each disk. Entries stay until the end: there are only as
 * many as disks.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} ends SEC(".maps");

static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp)
{
}

/*
 * Two CPUs that complete requests of a disk at the same time can both compare with the one before.
 * Neither is then known to be the first.
 */
static __always_inline void count_pattern(struct table_value *value, __u32 dev, __u64 sector,
					  __u64 end)
{
	__u64 *last = bpf_map_lookup_elem(&ends, &dev);

	if (!last) {
		if (bpf_map_update_elem(&ends, &dev, &end, BPF_ANY))
			lost_add(map_full);
		return;
	}
	if (*last == sector)
		table_add(value, sequential, 1);
	else
		table_add(value, random, 1);
	*last = end;
}

/* Requests without data, such as flushes, have no position. */
static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct)
{
	struct table_key key = { .dev = rq_dev(rq, direct) };
	struct table_value *value;
	__u64 sector;

	if (!io->bytes)
		return;
	value = table_find(&key);
	if (!value)
		return;
	sector = rq_first_sector(io, rq, direct);
	table_add(value, ios, 1);
	table_add(value, bytes, io->bytes);
	count_pattern(value, key.dev, sector, sector + (io->bytes >> SECTOR_SHIFT));
}

/* block_io_start exists from 6.5 on (5a80bd075f3b). */
HOOK(submit, block_io_start, handle_submit(ctx, (void *)ctx[0], direct))
PROGRAMS(submit__oldbtf, submit__oldraw, block_rq_insert,
	 handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(issue, block_rq_issue, handle_issue(ctx, block_arg(ctx, block_rq_issue), direct))
HOOK(requeue, block_rq_requeue, handle_requeue(block_arg(ctx, block_rq_requeue), direct))
HOOK(merge, block_rq_merge, handle_merge(block_arg(ctx, block_rq_merge), direct))
HOOK(complete, block_rq_complete,
     handle_complete(ctx, (void *)ctx[0], ctx[1], ctx[2], bpf_ktime_get_ns(), direct))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
