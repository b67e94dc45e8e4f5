// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

struct event {
	struct task_info task;
	__u64 bytes;
	__u32 dev;
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* The names of md disks start with md, and those of no other disks. */
static __always_inline bool disk_is_md(struct gendisk *disk)
{
	char name[3] = {};

	BPF_CORE_READ_STR_INTO(&name, disk, disk_name);
	return name[0] == 'm' && name[1] == 'd';
}

/*
 * An md disk flushes the disks below it when it receives a bio with this flag. The kernel removes
 * the flag earlier if no disk below has a volatile cache.
 */
static __always_inline int handle_queue(void *ctx, struct bio *bio, const bool direct)
{
	struct gendisk *disk = bio_disk(bio, direct);
	struct event e = {};

	if (!disk || !block_flag(block_read(direct, bio, bi_opf), PREFLUSH))
		return 0;
	if (!disk_is_bio_based(disk, direct) || !disk_is_md(disk) || !task_current_wanted())
		return 0;
	task_info_current(&e.task);
	e.dev = disk_dev(disk, direct);
	e.bytes = block_read(direct, bio, bi_iter.bi_size);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int flush__btf(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_queue(ctx, block_arg(ctx, block_bio_queue), true));
}

SEC("raw_tp/block_bio_queue")
int flush__raw(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_queue(ctx, block_arg(ctx, block_bio_queue), false));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
