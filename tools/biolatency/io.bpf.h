/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __IO_BPF_H
#define __IO_BPF_H

/*
 * How many entries are kept for the next use of their request, which spares allocation
 * and deletion. There is one struct request for each tag of a disk, so user space knows
 * how many there are, but for disks that come later.
 */
const volatile __u32 ios_kept = 1 << 10;

/* What is known of a struct request, from one use of it to the next. */
struct io {
	__u64 born_ns; /* the request's start_time_ns when it was first seen */
	__u64 begin_ns; /* inserted or issued, whichever came first */
	__u64 issue_ns; /* issued last */
	__u64 cgroup_id; /* the issuer's */
	bool live; /* allocated and not complete */
	bool requeued; /* and not issued again since */
	bool unwanted; /* by the task filter */
	__u8 pad[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 11);
	__type(key, __u64);
	__type(value, struct io);
} ios SEC(".maps");

__u64 ios_count;

/* In place of a birth that is not known yet: later than all. */
#define NOT_BORN (~0ULL)

/*
 * For the current task, or the cgroup that it acts for. That is the submitter when the
 * request is started (block_io_start). It is still the submitter when the request is
 * first inserted or issued, unless a flush goes before it, or the driver was too busy
 * to take it and said so without being issued it. Later it can be any task.
 */
static __always_inline void io_add_owner(struct io *io, struct bio *bio)
{
	struct task_struct *task;
	struct cgroup *cgrp = NULL;

	if (!task_filter && !want_cgroup)
		return;
	task = task_current();
	if (want_cgroup || targ_cgroup_id)
		cgrp = bio_cgroup(task, bio);
	if (want_cgroup)
		io->cgroup_id = BPF_CORE_READ(cgrp, kn, id);
	io->unwanted = !task_wanted_in(task, cgrp);
}

static __always_inline struct io *io_new(__u64 id)
{
	struct io fresh = {};
	struct io *io;

	if (!bpf_map_update_elem(&ios, &id, &fresh, BPF_NOEXIST))
		__sync_fetch_and_add(&ios_count, 1);
	io = bpf_map_lookup_elem(&ios, &id);
	if (!io)
		lost_add(map_full);
	return io;
}

/* The use is over, the entry is not looked at any more. */
static __always_inline void io_end(struct request *rq, struct io *io)
{
	__u64 id = (__u64)rq;

	io->live = false;
	if (ios_count > ios_kept && !bpf_map_delete_elem(&ios, &id))
		__sync_fetch_and_sub(&ios_count, 1);
}

static __always_inline struct io *io_begin(struct io *io, struct request *rq, const bool direct)
{
	if (!io)
		io = io_new((__u64)rq);
	if (!io)
		return NULL;
	if (io->live && io->issue_ns && !io->unwanted)
		counter_add(unended);
	io->born_ns = NOT_BORN;
	io->begin_ns = 0;
	io->issue_ns = 0;
	io->requeued = false;
	io->live = true;
	io_add_owner(io, block_read(direct, rq, bio));
	return io;
}

static __always_inline struct io *io_find(struct request *rq)
{
	__u64 id = (__u64)rq;

	return bpf_map_lookup_elem(&ios, &id);
}

/*
 * Whether it tells of the request's present use. A later use has a later birth; in one
 * use it changes only to an earlier one, that of a request which is merged into it.
 */
static __always_inline bool io_is_of(struct io *io, struct request *rq, const bool direct)
{
	return io && io->live && io->born_ns >= block_read(direct, rq, start_time_ns);
}

/* The request's present use, NULL if none was seen: not one whose end was missed. */
static __always_inline struct io *io_current(struct request *rq, const bool direct)
{
	struct io *io = io_find(rq);

	return io_is_of(io, rq, direct) ? io : NULL;
}

/* Of a use that was not seen the owner is not known. */
static __always_inline bool io_wanted(struct io *io)
{
	return io ? !io->unwanted : !task_filter;
}

/*
 * The use that a stamp is for: a new one unless it goes on. Births do not tell where the
 * disk's I/O is not accounted, as the kernel leaves start_time_ns alone then. But a
 * request that has the stamp already, and was not requeued, must be used anew.
 */
static __always_inline struct io *io_stamped(struct request *rq, bool is_issue, const bool direct)
{
	struct io *io = io_find(rq);

	if (!io_is_of(io, rq, direct))
		io = io_begin(io, rq, direct);
	else if (!io->requeued && (is_issue ? io->issue_ns : io->begin_ns))
		io = io_begin(io, rq, direct);
	if (io && !io->begin_ns)
		io->born_ns = block_read(direct, rq, start_time_ns);
	return io;
}

#endif
