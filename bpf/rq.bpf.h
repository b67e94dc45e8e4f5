/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __RQ_BPF_H
#define __RQ_BPF_H

#include "block.bpf.h"
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"
#include "task.bpf.h"

/*
 * The life of block requests: submitted, inserted, issued, requeued, merged, complete.
 * The tool defines struct io_owner before it includes this, and behind it io_owner_read()
 * and rq_report(), and hangs the handlers on their tracepoints by HOOK.
 */

/* Only this disk or partition, MAJOR << 20 | MINOR. */
const volatile __u32 targ_dev = 0;

/* The owner of requests is kept, not only tested. */
const volatile bool want_owner = false;

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
	__u64 bytes; /* that are complete */
	struct io_owner owner; /* if wanted */
	bool live; /* allocated and not complete */
	bool requeued; /* and not issued again since */
	bool unwanted; /* by the task filter */
	__u8 pad[5];
};

/* Fills what is wanted of the owner, the current task, which acts for the cgroup. */
static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp);

/* Tells of a request that is complete, and was seen to be issued. */
static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct);

struct counters {
	__u64 errors; /* completions with an error */
	__u64 requeues; /* requests that the driver gave back */
	__u64 merges; /* requests that became a part of another one */
	__u64 partial; /* completions of a part of a request */
	__u64 in_flight; /* completions of what was issued before this program ran */
	__u64 unmatched; /* completions of what was never seen to be issued; lost (unobserved) */
	__u64 unended; /* requests whose completion was never seen; lost (unobserved) */
	__u64 negative; /* completions that came before the issue */
	__u64 unfinished; /* requests that were issued and not complete when the run ended */
};

#include "counters.bpf.h"

/* When the first request was seen to be issued. */
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

/* In place of a birth that is not known yet: later than all. */
#define NOT_BORN (~0ULL)

/*
 * For the current task, or the cgroup that it acts for. That is the submitter when the
 * request is started (block_io_start). It is still the submitter when the request is
 * first inserted or issued, unless a flush goes before it, or the driver was too busy
 * to take it and said so without being issued it. Later it can be any task.
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
	io->born_ns = NOT_BORN;
	io->begin_ns = 0;
	io->issue_ns = 0;
	io->bytes = 0;
	io->requeued = false;
	io->live = true;
	io_add_owner(ctx, io, block_read(direct, rq, bio));
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
static __always_inline struct io *io_stamped(void *ctx, struct request *rq, bool is_issue,
					     const bool direct)
{
	struct io *io = io_find(rq);

	if (!io_is_of(io, rq, direct))
		io = io_begin(ctx, io, rq, direct);
	else if (!io->requeued && (is_issue ? io->issue_ns : io->begin_ns))
		io = io_begin(ctx, io, rq, direct);
	if (io && !io->begin_ns)
		io->born_ns = block_read(direct, rq, start_time_ns);
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
	io = io_stamped(ctx, rq, false, direct);
	if (io && !io->begin_ns)
		io->begin_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int handle_issue(void *ctx, struct request *rq, const bool direct)
{
	struct io *io;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_stamped(ctx, rq, true, direct);
	if (!io)
		return 0;
	io->requeued = false;
	io->issue_ns = bpf_ktime_get_ns();
	if (!io->begin_ns)
		io->begin_ns = io->issue_ns;
	if (!first_issue_ns)
		first_issue_ns = io->issue_ns;
	return 0;
}

/* The driver could not take it: it is issued again, now or later. */
static __always_inline int handle_requeue(struct request *rq, const bool direct)
{
	struct io *io;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_current(rq, direct);
	if (io) {
		io->issue_ns = 0;
		io->requeued = true;
	}
	if (io_wanted(io))
		counter_add(requeues);
	return 0;
}

/*
 * A request that was issued, at the end of the run, while the hooks are still attached. The
 * tracepoint of the completion comes before the request is idle: if it is, or is used anew,
 * no program ran for its completion.
 */
static __always_inline void io_settle(struct io *io, struct request *rq)
{
	if (!io->live || !io->issue_ns || io->unwanted)
		return;
	if (BPF_CORE_READ(rq, state) != MQ_RQ_IDLE &&
	    BPF_CORE_READ(rq, start_time_ns) <= io->born_ns) {
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

/* It is a part of another request now, and will not be issued. */
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
 * A write with a flush before or after it, and a flush without a write, end once more
 * when all of that is done, with no bytes. Each step was a request that was counted.
 */
static __always_inline void count_unmatched(struct request *rq, __u32 nr_bytes, const bool direct)
{
	__u64 born_ns = block_read(direct, rq, start_time_ns);

	if (!nr_bytes && block_op(block_read(direct, rq, cmd_flags)) == BLOCK_OP_WRITE)
		return;
	if (born_ns && (!first_issue_ns || born_ns < first_issue_ns)) {
		counter_add(in_flight);
		return;
	}
	counter_add(unmatched);
	lost_add(unobserved);
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

/* A program of tp_btf, and one of raw_tp for where there is no such. */
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
