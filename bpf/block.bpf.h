/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BLOCK_BPF_H
#define __BLOCK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/*
 * Block requests and bios, as passed to the tracepoints block:*, from kernel 5.8 on.
 *
 * The parameter "direct" is a constant: true in tp_btf programs, which can dereference pointers,
 * and false in raw_tp programs, which need a helper to read memory.
 */

#define PF_KTHREAD 0x00200000
#define MINORBITS 20

#define block_read(direct, p, field) ((direct) ? (p)->field : BPF_CORE_READ(p, field))

/* IDs of the types in the kernel's BTF, 0 if unknown (probe.Kernel.setTypeIDs). */
const volatile __u32 type_id_request = 0;
const volatile __u32 type_id_bio = 0;

/*
 * The same pointer, but not trusted by the verifier. For each load of a pointer through a trusted one,
 * such as an argument of the program, the verifier searches the names of all types several times (from
 * 6.3 on, 57539b1c0ac2). That takes half of the time in which biosnoop starts.
 */
#define block_untrusted(p)                                     \
	({                                                     \
		typeof(p) __p = (p);                           \
		__u32 __id = _Generic(__p,                     \
			struct request *: type_id_request,     \
			struct bio *: type_id_bio);            \
                                                               \
		if (__id)                                      \
			__p = bpf_rdonly_cast(__p, __id);      \
		__p;                                           \
	})

/* block_read of a member of an argument that is a pointer. */
#define block_read_ptr(direct, p, field) ((direct) ? block_untrusted(p)->field : BPF_CORE_READ(p, field))

/*
 * These types exist in kernels whose tracepoints have a request_queue as first argument. It was
 * removed for requests in 5.11 and 5.10.137 (a54895fa057c), and for bios in 5.11 (e8a676d61c07).
 */
typedef void (*btf_trace_block_rq_insert___q)(void *, struct request_queue *, struct request *);
typedef void (*btf_trace_block_rq_issue___q)(void *, struct request_queue *, struct request *);
typedef void (*btf_trace_block_rq_requeue___q)(void *, struct request_queue *, struct request *);
typedef void (*btf_trace_block_rq_merge___q)(void *, struct request_queue *, struct request *);
typedef void (*btf_trace_block_bio_queue___q)(void *, struct request_queue *, struct bio *);

/*
 * Without the barrier, clang selects one of two addresses and loads from it. The verifier rejects a
 * load from the context at an address that is not constant.
 */
#define block_arg(ctx, event)                                           \
	({                                                              \
		void *__arg;                                            \
		if (bpf_core_type_exists(btf_trace_##event##___q)) {    \
			__arg = (void *)(ctx)[1];                       \
			barrier_var(__arg);                             \
		} else {                                                \
			__arg = (void *)(ctx)[0];                       \
		}                                                       \
		__arg;                                                  \
	})

/*
 * request.rq_disk was removed in 5.17 (f3fa33acca9f); request_queue.disk exists from 5.15 on
 * (d152c682f03c).
 */
struct request___rq_disk {
	struct gendisk *rq_disk;
} __attribute__((preserve_access_index));

/* Before 5.11 a partition was a struct hd_struct, not a struct block_device (0d02129e76ed). */
struct hd_struct___old {
	struct device __dev;
} __attribute__((preserve_access_index));

struct request___hd_struct {
	struct hd_struct___old *part;
} __attribute__((preserve_access_index));

/* Before 5.12 a bio referred to the disk, not to the partition (309dca309fc3). */
struct bio___bi_disk {
	struct gendisk *bi_disk;
} __attribute__((preserve_access_index));

/* Before 6.0 the operations were values of this enum (ff07a02e9e8e). */
enum req_opf___old {
	REQ_OP_SECURE_ERASE___old,
	REQ_OP_WRITE_ZEROES___old,
	REQ_OP_WRITE_SAME___old,
	REQ_OP_ZONE_APPEND___old,
	REQ_OP_ZONE_OPEN___old,
	REQ_OP_ZONE_CLOSE___old,
	REQ_OP_ZONE_FINISH___old,
	REQ_OP_ZONE_RESET___old,
	REQ_OP_ZONE_RESET_ALL___old,
	REQ_OP_DRV_IN___old,
	REQ_OP_DRV_OUT___old,
	REQ_OP_SCSI_IN___old,
	REQ_OP_SCSI_OUT___old,
};

/* Operations, with numbers that do not depend on the kernel version. */
enum block_op {
	BLOCK_OP_READ,
	BLOCK_OP_WRITE,
	BLOCK_OP_FLUSH,
	BLOCK_OP_DISCARD,
	BLOCK_OP_SECURE_ERASE,
	BLOCK_OP_WRITE_ZEROES,
	BLOCK_OP_WRITE_SAME,
	BLOCK_OP_ZONE_APPEND,
	BLOCK_OP_ZONE_OPEN,
	BLOCK_OP_ZONE_CLOSE,
	BLOCK_OP_ZONE_FINISH,
	BLOCK_OP_ZONE_RESET,
	BLOCK_OP_ZONE_RESET_ALL,
	BLOCK_OP_DRV_IN,
	BLOCK_OP_DRV_OUT,
	BLOCK_OP_SCSI_IN,
	BLOCK_OP_SCSI_OUT,
	BLOCK_OP_OTHER,
};

/* Flags of an I/O, as bit numbers that do not depend on the kernel version. */
enum block_flag {
	BLOCK_FLAG_SYNC,
	BLOCK_FLAG_META,
	BLOCK_FLAG_PRIO,
	BLOCK_FLAG_NOMERGE,
	BLOCK_FLAG_IDLE,
	BLOCK_FLAG_INTEGRITY,
	BLOCK_FLAG_FUA,
	BLOCK_FLAG_PREFLUSH,
	BLOCK_FLAG_RAHEAD,
	BLOCK_FLAG_BACKGROUND,
	BLOCK_FLAG_NOWAIT,
};

/* Keeps the types in the BTF of the object: Go takes its constants from there. */
const enum block_op *block_op_type __attribute__((unused));
const enum block_flag *block_flag_type __attribute__((unused));

#define REQ_OP_MASK 0xff

/* vmlinux.h has no values for operations that exist only in the old enum. */
#define block_op_is_old(op, name)                                              \
	(bpf_core_enum_value_exists(enum req_opf___old, REQ_OP_##name##___old) && \
	 (op) == bpf_core_enum_value(enum req_opf___old, REQ_OP_##name##___old))

#define block_op_is(op, name)                                          \
	(bpf_core_enum_value_exists(enum req_op, REQ_OP_##name) ?       \
		 (op) == bpf_core_enum_value(enum req_op, REQ_OP_##name) : \
		 block_op_is_old(op, name))

/* The operations up to REQ_OP_DISCARD have the same numbers in all kernels. */
static __always_inline enum block_op block_op(__u32 cmd_flags)
{
	__u32 op = cmd_flags & REQ_OP_MASK;

	if (op <= REQ_OP_DISCARD)
		return op;
	if (block_op_is(op, SECURE_ERASE))
		return BLOCK_OP_SECURE_ERASE;
	if (block_op_is(op, WRITE_ZEROES))
		return BLOCK_OP_WRITE_ZEROES;
	if (block_op_is_old(op, WRITE_SAME))
		return BLOCK_OP_WRITE_SAME;
	if (block_op_is(op, ZONE_APPEND))
		return BLOCK_OP_ZONE_APPEND;
	if (block_op_is(op, ZONE_OPEN))
		return BLOCK_OP_ZONE_OPEN;
	if (block_op_is(op, ZONE_CLOSE))
		return BLOCK_OP_ZONE_CLOSE;
	if (block_op_is(op, ZONE_FINISH))
		return BLOCK_OP_ZONE_FINISH;
	if (block_op_is(op, ZONE_RESET))
		return BLOCK_OP_ZONE_RESET;
	if (block_op_is(op, ZONE_RESET_ALL))
		return BLOCK_OP_ZONE_RESET_ALL;
	if (block_op_is(op, DRV_IN))
		return BLOCK_OP_DRV_IN;
	if (block_op_is(op, DRV_OUT))
		return BLOCK_OP_DRV_OUT;
	if (block_op_is_old(op, SCSI_IN))
		return BLOCK_OP_SCSI_IN;
	if (block_op_is_old(op, SCSI_OUT))
		return BLOCK_OP_SCSI_OUT;
	return BLOCK_OP_OTHER;
}

/* The bit of the flag if it is set in cmd_flags, otherwise 0. */
#define block_flag(cmd_flags, name)                                             \
	((bpf_core_enum_value_exists(enum req_flag_bits, __REQ_##name) ?         \
		  (cmd_flags) >> bpf_core_enum_value(enum req_flag_bits, __REQ_##name) & 1 : \
		  0)                                                             \
	 << BLOCK_FLAG_##name)

/*
 * The flags of an I/O. Flags about error handling and polling in the driver are omitted: they would
 * only split one histogram into several.
 */
static __always_inline __u16 block_flags(__u32 cmd_flags)
{
	return block_flag(cmd_flags, SYNC) | block_flag(cmd_flags, META) |
	       block_flag(cmd_flags, PRIO) | block_flag(cmd_flags, NOMERGE) |
	       block_flag(cmd_flags, IDLE) | block_flag(cmd_flags, INTEGRITY) |
	       block_flag(cmd_flags, FUA) | block_flag(cmd_flags, PREFLUSH) |
	       block_flag(cmd_flags, RAHEAD) | block_flag(cmd_flags, BACKGROUND) |
	       block_flag(cmd_flags, NOWAIT);
}

/* The device number of a disk, MAJOR << 20 | MINOR; 0 without a disk. */
static __always_inline __u32 disk_dev(struct gendisk *disk, const bool direct)
{
	if (!disk)
		return 0;
	return block_read(direct, disk, major) << MINORBITS |
	       block_read(direct, disk, first_minor);
}

/* The device number of the request's disk, also if the request is for a partition. */
static __always_inline __u32 rq_dev(struct request *rq, const bool direct)
{
	struct request___rq_disk *old = (void *)rq;
	struct request_queue *q;

	if (!bpf_core_field_exists(struct request_queue, disk))
		return disk_dev(block_read(direct, old, rq_disk), direct);
	q = block_read_ptr(direct, rq, q);
	return disk_dev(block_read(direct, q, disk), direct);
}

static __always_inline __u32 bdev_dev(struct block_device *bdev, const bool direct)
{
	return bdev ? block_read(direct, bdev, bd_dev) : 0;
}

/*
 * The device number of the request's partition, or of the disk if the request is for the whole
 * disk. Without I/O accounting (queue/iostats) only the bio of the request refers to the partition;
 * before 5.12 it does not, and the result is the disk.
 */
static __always_inline __u32 rq_part_dev(struct request *rq, const bool direct)
{
	struct request___hd_struct *old = (void *)rq;
	struct hd_struct___old *hd;
	struct block_device *part;
	struct bio *bio;
	__u32 dev = 0;

	if (bpf_core_type_exists(struct hd_struct___old)) {
		hd = block_read(direct, old, part);
		if (hd)
			dev = block_read(direct, hd, __dev.devt);
	} else {
		part = block_read_ptr(direct, rq, part);
		bio = block_read_ptr(direct, rq, bio);
		if (!part && bio && bpf_core_field_exists(struct bio, bi_bdev))
			part = block_read_ptr(direct, bio, bi_bdev);
		dev = bdev_dev(part, direct);
	}
	return dev ?: rq_dev(rq, direct);
}

/*
 * Reports whether the request is one step of a write with flushes, after which more steps follow.
 */
static __always_inline bool rq_is_flush_step(struct request *rq, const bool direct)
{
	__u32 bit = 4; /* value of the macro that the enum replaced */

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_FLUSH_SEQ))
		bit = bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ);
	return block_read(direct, rq, rq_flags) >> bit & 1;
}

static __always_inline struct gendisk *bio_disk(struct bio *bio, const bool direct)
{
	struct bio___bi_disk *old = (void *)bio;
	struct block_device *bdev;

	if (!bpf_core_field_exists(struct bio, bi_bdev))
		return block_read(direct, old, bi_disk);
	bdev = block_read_ptr(direct, bio, bi_bdev);
	return bdev ? block_read(direct, bdev, bd_disk) : NULL;
}

/* The same for a bio; before 5.12 it is the disk. */
static __always_inline __u32 bio_part_dev(struct bio *bio, const bool direct)
{
	if (!bpf_core_field_exists(struct bio, bi_bdev))
		return disk_dev(bio_disk(bio, direct), direct);
	return bdev_dev(block_read_ptr(direct, bio, bi_bdev), direct);
}

/* Reports whether the disk processes bios without requests: dm, md, zram. */
static __always_inline bool disk_is_bio_based(struct gendisk *disk, const bool direct)
{
	struct request_queue *q;

	if (!disk)
		return false;
	q = block_read(direct, disk, queue);
	return !block_read(direct, q, mq_ops);
}

/*
 * The cgroup that the task submits the bio for. Kernel threads write back or resubmit I/O of other
 * tasks. For these it is the cgroup of the bio: the nearest one with the I/O controller enabled. If
 * cgroups are named by another hierarchy than that of the controller, it is the cgroup of the task.
 */
static __always_inline struct cgroup *bio_cgroup(struct task_struct *task, struct bio *bio)
{
	struct cgroup *own = task_cgroup(task), *cgrp;

	if (!bio || !bpf_core_field_exists(struct bio, bi_blkg))
		return own;
	if (!(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		return own;
	cgrp = BPF_CORE_READ(bio, bi_blkg, blkcg, css.cgroup);
	if (!cgrp || BPF_CORE_READ(cgrp, root) != BPF_CORE_READ(own, root))
		return own;
	return cgrp;
}

#endif
