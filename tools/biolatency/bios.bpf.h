/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BIOS_BPF_H
#define __BIOS_BPF_H

/*
 * Disks without requests (dm, md, zram): their latency is the time from queueing a bio to its end.
 * A bio that is split or passed on to another disk keeps its entry, because the kernel traces the
 * queueing of a bio once.
 */

/* Maximum number of bios read per request: more than the segments that devices support. */
#define BIOS_OF_REQUEST 256

#define BLK_STS_OK 0

/* The flag BIO_TRACE_COMPLETION of an enum without a name: set from the queueing of a bio to its end. */
const volatile __u32 bio_queued_flag = 0;

struct bio_io {
	struct hist_key key;
	__u64 queue_ns;
	__u32 op; /* REQ_OP_* */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u64);
	__type(value, struct bio_io);
} bios SEC(".maps");

/* Set when the first bio is added. Before, requests are not searched for bios. */
bool bios_noted;

/* An empty write with the flush flag is how a disk without requests receives a flush. */
static __always_inline void bio_key_add_flags(struct hist_key *key, struct bio *bio,
					      const bool direct)
{
	__u32 opf = block_read(direct, bio, bi_opf);

	key_add_flags(key, opf);
	if (block_flag(opf, PREFLUSH) && !block_read(direct, bio, bi_iter.bi_size))
		key->op = BLOCK_OP_FLUSH;
}

static __always_inline void bio_begin(struct bio *bio, struct bio_io *b, const bool direct)
{
	if (want_disk)
		b->key.dev = disk_dev(bio_disk(bio, direct), direct);
	if (want_partition)
		b->key.part = bio_part_dev(bio, direct);
	if (want_operation || want_flags)
		bio_key_add_flags(&b->key, bio, direct);
	if (want_stages)
		b->key.stage = STAGE_TOTAL;
	b->op = block_read(direct, bio, bi_opf) & REQ_OP_MASK;
	b->queue_ns = bpf_ktime_get_ns();
}

static __always_inline bool bio_wanted(struct bio *bio, struct gendisk *disk, const bool direct)
{
	return !targ_dev || dev_wanted(disk_dev(disk, direct), bio_part_dev(bio, direct));
}

static __always_inline bool bio_owner_wanted(struct bio *bio, struct hist_key *key)
{
	struct task_struct *task;
	struct cgroup *cgrp;

	if (!task_filter && !want_owner)
		return true;
	task = task_current();
	cgrp = bio_cgroup(task, bio);
	if (want_owner)
		key->cgroup_id = BPF_CORE_READ(cgrp, kn, id);
	return task_wanted_in(task, cgrp);
}

/* Ends a bio whose completion was not observed, unless its entry was removed in the meantime. */
static __always_inline void bio_end_unobserved(__u64 id)
{
	if (bpf_map_delete_elem(&bios, &id))
		return;
	counter_add(unended);
	lost_add(unobserved);
}

/* A bio that is queued is in a new use, also if it is for a disk with requests. */
static __always_inline int handle_bio_queue(struct bio *bio, const bool direct)
{
	struct gendisk *disk = bio_disk(bio, direct);
	struct bio_io b = {};
	__u64 id = (__u64)bio;

	if (bios_noted)
		bio_end_unobserved(id);
	if (!disk_is_bio_based(disk, direct) || !bio_wanted(bio, disk, direct) ||
	    !bio_owner_wanted(bio, &b.key))
		return 0;
	bio_begin(bio, &b, direct);
	if (!bios_noted)
		bios_noted = true;
	if (bpf_map_update_elem(&bios, &id, &b, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/*
 * Called for each bio without an observed end, at the end of the run, while the hooks are still
 * attached. The kernel clears the flag after it has traced the end. Memory that is no bio any more can
 * have any contents.
 */
static __always_inline void bio_settle(__u64 id, __u32 op)
{
	struct bio *bio = (struct bio *)id;

	if (BPF_CORE_READ(bio, bi_flags) & bio_queued_flag &&
	    (BPF_CORE_READ(bio, bi_opf) & REQ_OP_MASK) == op) {
		counter_add(unfinished);
		return;
	}
	bio_end_unobserved(id);
}

SEC("iter/bpf_map_elem")
int settle_bios(struct bpf_iter__bpf_map_elem *ctx)
{
	__u64 *id = ctx->key;
	struct bio_io *b = ctx->value;

	if (id && b)
		bio_settle(*id, b->op);
	return 0;
}

static __always_inline void bio_end(__u64 id, __u32 error, __u64 now_ns)
{
	struct bio_io *b = bpf_map_lookup_elem(&bios, &id);

	if (!b)
		return;
	if (error != BLK_STS_OK)
		counter_add(errors);
	record(&b->key, b->queue_ns, now_ns);
	bpf_map_delete_elem(&bios, &id);
}

static __always_inline int handle_bio_complete(struct bio *bio, const bool direct)
{
	__u64 now_ns = bpf_ktime_get_ns();

	bio_end((__u64)bio, block_read(direct, bio, bi_status), now_ns);
	return 0;
}

/* Global, so that the verifier checks it once instead of for each of its calls. */
__noinline int bio_end_of(__u64 id, __u32 error, __u64 now_ns)
{
	bio_end(id, error, now_ns);
	return 0;
}

struct ended_bios {
	struct bio *next;
	__u32 left; /* bytes that ended */
	__u32 error;
	__u64 now_ns;
};

static __always_inline bool ended_bios_step(void *state, __u32 i)
{
	struct ended_bios *e = state;
	struct bio *bio = e->next;
	__u32 size;

	if (!bio)
		return false;
	size = BPF_CORE_READ(bio, bi_iter.bi_size);
	if (size > e->left)
		return false;
	e->left -= size;
	bio_end_of((__u64)bio, e->error, e->now_ns);
	e->next = BPF_CORE_READ(bio, bi_next);
	return true;
}

/*
 * A bio that its disk passed on unchanged to a disk with requests (md without accounting, multipath
 * NVMe) ends with the request, where the kernel does not trace it.
 */
static __always_inline void bios_complete(struct request *rq, __u32 error, __u32 nr_bytes,
					  __u64 now_ns, const bool direct)
{
	struct ended_bios e = { .left = nr_bytes, .error = error, .now_ns = now_ns };

	if (!bios_noted || rq_is_flush_step(rq, direct))
		return;
	e.next = BPF_CORE_READ(rq, bio);
	loop_while(BIOS_OF_REQUEST, ended_bios_step, &e);
}

#endif
