/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __RQ_BPF_H
#define __RQ_BPF_H

#include "block.bpf.h"
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"
#include "observing.bpf.h"
#include "task.bpf.h"

/*
 * The life cycle of block requests: submitted, inserted, issued, requeued, merged, completed. The
 * tool defines struct io_owner before it includes this header. After it, the tool defines
 * io_owner_read() and rq_report(), and the programs with HOOK.
 */

#define SECTOR_SHIFT 9

/* Only this disk or partition, MAJOR << 20 | MINOR; 0 for all. */
const volatile __u32 targ_dev = 0;

/* Store the owner of requests, in addition to filtering by it. */
const volatile bool want_owner = false;

/*
 * Number of entries that are kept for the next use of their request, which saves allocation and
 * deletion. A disk has one struct request per tag, so user space knows their number, except for
 * disks that are added later.
 */
const volatile __u32 ios_kept = 1 << 10;

/* The state of a struct request, kept from one use to the next. */
struct io {
	__u64 start_time_ns; /* start_time_ns of the request when it was first inserted or issued */
	__u64 begin_ns; /* first insertion or issue */
	__u64 issue_ns; /* last issue */
	__u64 bytes; /* completed */
	struct io_owner owner; /* if want_owner */
	bool live; /* allocated and not completed */
	bool requeued; /* and not issued since */
	bool unwanted; /* by the task filter */
	__u8 pad[5];
};

/*
 * Defined by the tool: stores the owner, which is the current task; cgrp is the cgroup that it acts
 * for.
 */
static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp);

/* Defined by the tool: reports a completed request whose issue was observed. */
static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct);

/* What the tool does when a request is issued, if it defines it. */
#ifndef RQ_ISSUED
#define RQ_ISSUED(io, rq)
#endif

/* Further members of struct counters, if the tool defines them. */
#ifndef RQ_COUNTERS
#define RQ_COUNTERS
#endif

struct counters {
	__u64 errors; /* completions with an error */
	__u64 requeues; /* requests that the driver returned */
	__u64 merges; /* requests merged into another one */
	__u64 partial; /* completions of a part of a request */
	__u64 in_flight; /* completions of requests that were issued before the run */
	__u64 unmatched; /* completions of requests whose issue was not observed; lost (unobserved) */
	__u64 unended; /* requests whose completion was not observed; lost (unobserved) */
	__u64 negative; /* completions before the issue */
	__u64 unfinished; /* requests that were issued, and not completed when the run ended */
	RQ_COUNTERS
};

#include "counters.bpf.h"

/* Time of the first observed issue. */
__u64 first_issue_ns;

static __always_inline bool dev_wanted(__u32 dev, __u32 part)
{
	return !targ_dev || targ_dev == dev || targ_dev == part;
}

static __always_inline bool rq_wanted(struct request *rq, const bool direct)
{
	return !targ_dev || dev_wanted(rq_dev(rq, direct), rq_part_dev(rq, direct));
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 11);
	__type(key, __u64);
	__type(value, struct io);
} ios SEC(".maps") USER_SPACE;

__u64 ios_count;

/*
 * Issued requests that have no entry in ios, and are not completed or requeued yet. Two completions can
 * take the last one at the same time: then one is counted with the other loss reason.
 */
__s64 issued_unstored;

/* Initial value of start_time_ns: later than any time. */
#define NO_START_TIME (~0ULL)

/*
 * Applies the task filter to the current task, or to the cgroup that it acts for, and stores it as
 * the owner. When the request is started (block_io_start), that is the submitter. At the first
 * insertion or issue it is still the submitter, unless a flush precedes the request, or the driver
 * was busy and returned the request before it was issued. Later it can be any task.
 */
static __always_inline void io_add_owner(void *ctx, struct io *io, struct bio *bio)
{
	struct task_struct *task;
	struct cgroup *cgrp = NULL;

	if (!task_filter && !want_owner)
		return;
	task = task_current();
	if (want_owner || targ_cgroup_id)
		cgrp = bio_cgroup(task, bio);
	io->unwanted = !task_wanted_in(task, cgrp);
	if (want_owner && !io->unwanted)
		io_owner_read(ctx, &io->owner, task, cgrp);
}

/*
 * Returns NULL if the map is full or the kernel has no memory for the entry. That is counted when the
 * request completes, once: each of its stages may try it.
 */
static __always_inline struct io *io_new(__u64 id)
{
	struct io zero = {};

	if (!bpf_map_update_elem(&ios, &id, &zero, BPF_NOEXIST))
		__sync_fetch_and_add(&ios_count, 1);
	return bpf_map_lookup_elem(&ios, &id);
}

/* Takes one request from issued_unstored, if there is one. */
static __always_inline bool take_unstored(void)
{
	if (issued_unstored <= 0)
		return false;
	__sync_fetch_and_add(&issued_unstored, -1);
	return true;
}

/* Ends the current use of a request. The entry must not be accessed afterwards. */
static __always_inline void io_end(struct request *rq, struct io *io)
{
	__u64 id = (__u64)rq;

	io->live = false;
	if (ios_count > ios_kept && !bpf_map_delete_elem(&ios, &id))
		__sync_fetch_and_sub(&ios_count, 1);
}

static __always_inline struct io *io_begin(void *ctx, struct io *io, struct request *rq,
					   const bool direct)
{
	if (!io)
		io = io_new((__u64)rq);
	if (!io)
		return NULL;
	if (io->live && io->issue_ns && !io->unwanted) {
		counter_add(unended);
		lost_add(unobserved);
	}
	io->start_time_ns = NO_START_TIME;
	io->begin_ns = 0;
	io->issue_ns = 0;
	io->bytes = 0;
	io->requeued = false;
	io->live = true;
	io_add_owner(ctx, io, block_read_ptr(direct, rq, bio));
	return io;
}

static __always_inline struct io *io_find(struct request *rq)
{
	__u64 id = (__u64)rq;

	return bpf_map_lookup_elem(&ios, &id);
}

/*
 * Reports whether the entry belongs to the current use of the request. A later use has a later
 * start_time_ns. During one use start_time_ns only decreases: when an older request is merged into
 * this one.
 */
static __always_inline bool io_is_current(struct io *io, struct request *rq, const bool direct)
{
	return io && io->live && io->start_time_ns >= block_read(direct, rq, start_time_ns);
}

/* The entry of the request's current use, NULL if that use was not observed. */
static __always_inline struct io *io_current(struct request *rq, const bool direct)
{
	struct io *io = io_find(rq);

	return io_is_current(io, rq, direct) ? io : NULL;
}

/* The owner of a use that was not observed is unknown. */
static __always_inline bool io_wanted(struct io *io)
{
	return io ? !io->unwanted : !task_filter;
}

/*
 * Returns the entry for an insertion or issue, of a new use if the current one does not continue.
 * If I/O accounting is off for the disk, the kernel does not set start_time_ns, so it does not show
 * a new use. But a request that was inserted (or issued) already, and was not requeued, is in a new
 * use.
 */
static __always_inline struct io *io_for_stamp(void *ctx, struct request *rq, bool is_issue,
					       const bool direct)
{
	struct io *io = io_find(rq);

	if (!io_is_current(io, rq, direct))
		io = io_begin(ctx, io, rq, direct);
	else if (!io->requeued && (is_issue ? io->issue_ns : io->begin_ns))
		io = io_begin(ctx, io, rq, direct);
	if (io && !io->begin_ns)
		io->start_time_ns = block_read(direct, rq, start_time_ns);
	return io;
}

static __always_inline int handle_submit(void *ctx, struct request *rq, const bool direct)
{
	if (rq_wanted(rq, direct))
		io_begin(ctx, io_find(rq), rq, direct);
	return 0;
}

static __always_inline int handle_insert(void *ctx, struct request *rq, const bool direct)
{
	struct io *io;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_for_stamp(ctx, rq, false, direct);
	if (io && !io->begin_ns)
		io->begin_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int handle_issue(void *ctx, struct request *rq, const bool direct)
{
	struct io *io;
	__u64 now_ns;

	if (!rq_wanted(rq, direct))
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (!first_issue_ns)
		first_issue_ns = now_ns;
	io = io_for_stamp(ctx, rq, true, direct);
	if (!io) {
		__sync_fetch_and_add(&issued_unstored, 1);
		return 0;
	}
	io->requeued = false;
	io->issue_ns = now_ns;
	if (!io->begin_ns)
		io->begin_ns = now_ns;
	RQ_ISSUED(io, rq);
	return 0;
}

/* The driver could not accept the request: it is issued again, now or later. */
static __always_inline int handle_requeue(struct request *rq, const bool direct)
{
	struct io *io;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_current(rq, direct);
	if (io) {
		io->issue_ns = 0;
		io->requeued = true;
	} else {
		take_unstored();
	}
	if (io_wanted(io))
		counter_add(requeues);
	return 0;
}

/*
 * Called for each request that was issued, at the end of the run, while the hooks are still
 * attached. The tracepoint of the completion is hit before the request becomes idle: if it is idle,
 * or in a new use, its completion was not observed.
 */
static __always_inline void io_settle(struct io *io, struct request *rq)
{
	if (!io->live || !io->issue_ns || io->unwanted)
		return;
	if (BPF_CORE_READ(rq, state) != MQ_RQ_IDLE &&
	    BPF_CORE_READ(rq, start_time_ns) <= io->start_time_ns) {
		counter_add(unfinished);
		return;
	}
	io->live = false;
	counter_add(unended);
	lost_add(unobserved);
}

SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	struct request **rq = ctx->key;
	struct io *io = ctx->value;

	if (rq && io)
		io_settle(io, *rq);
	return 0;
}

/* The request is part of another one now, and will not be issued. */
static __always_inline int handle_merge(struct request *rq, const bool direct)
{
	struct io *io;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_current(rq, direct);
	if (io_wanted(io))
		counter_add(merges);
	if (io)
		io_end(rq, io);
	return 0;
}

/*
 * A write with a flush before or after it, and a flush without a write, complete once more at their
 * end, with 0 bytes. Each of their steps was a request that has been counted.
 */
static __always_inline void count_unmatched(struct request *rq, __u32 nr_bytes, const bool direct)
{
	__u64 start_time_ns = block_read(direct, rq, start_time_ns);

	if (!nr_bytes && (block_read(direct, rq, cmd_flags) & REQ_OP_MASK) == BLOCK_OP_WRITE)
		return;
	if (start_time_ns && (!first_issue_ns || start_time_ns < first_issue_ns)) {
		counter_add(in_flight);
		return;
	}
	if (!observing) /* the issue may be after the end: its program can be detached first */
		return;
	if (take_unstored()) {
		lost_add(map_full);
		return;
	}
	counter_add(unmatched);
	lost_add(unobserved);
}

/* The start of the request as issued: completed parts have been removed from it. */
static __always_inline __u64 rq_first_sector(struct io *io, struct request *rq, const bool direct)
{
	__u64 done = io->bytes - block_read(direct, rq, __data_len);

	return block_read(direct, rq, __sector) - (done >> SECTOR_SHIFT);
}

static __always_inline int handle_complete(void *ctx, struct request *rq, __u32 error,
					   __u32 nr_bytes, __u64 now_ns, const bool direct)
{
	struct io *io;
	bool wanted;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_current(rq, direct);
	wanted = io_wanted(io);
	if (wanted && error)
		counter_add(errors);
	if (io)
		io->bytes += nr_bytes;
	if (nr_bytes < block_read(direct, rq, __data_len)) {
		if (wanted)
			counter_add(partial);
		return 0;
	}
	if (!io || !io->issue_ns)
		count_unmatched(rq, nr_bytes, direct);
	else if (wanted)
		rq_report(ctx, io, rq, error, now_ns, direct);
	if (io)
		io_end(rq, io);
	return 0;
}

/* Defines a tp_btf program, and a raw_tp program as its fallback. */
#define PROGRAMS(btf, raw, event, call)        \
	SEC("tp_btf/" #event)                  \
	int btf(__u64 *ctx)                    \
	{                                      \
		const bool direct = true;      \
                                               \
		return NOT_PREEMPTED(call);    \
	}                                      \
	SEC("raw_tp/" #event)                  \
	int raw(__u64 *ctx)                    \
	{                                      \
		const bool direct = false;     \
                                               \
		return NOT_PREEMPTED(call);    \
	}

#define HOOK(name, event, call) PROGRAMS(name##__btf, name##__raw, event, call)

#endif
