// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "compat.bpf.h"
#include "task.bpf.h"
#include "lost.bpf.h"

/* Time from the insertion on, or all three of these times at once. */
const volatile bool targ_queued = false;
const volatile bool want_stages = false;
/* What tells histograms apart. */
const volatile bool want_disk = false;
const volatile bool want_partition = false;
const volatile bool want_operation = false;
const volatile bool want_flags = false;
const volatile bool want_cgroup = false;
/* Disks that are given bios are seen as well. */
const volatile bool want_bios = false;
/* Only this disk or partition, MAJOR << 20 | MINOR. */
const volatile __u32 targ_dev = 0;

enum stage {
	STAGE_NONE,
	STAGE_QUEUE, /* insertion to issue, 0 if it was issued at once */
	STAGE_DEVICE, /* issue to completion */
	STAGE_TOTAL, /* insertion, or else issue, to completion */
};

/* What no option asks for is 0. */
struct hist_key {
	__u64 cgroup_id;
	__u32 dev;
	__u32 part;
	__u16 flags;
	__u8 op;
	__u8 stage;
	__u32 pad;
};

#include "hist.bpf.h"

struct counters {
	__u64 errors; /* completions with an error */
	__u64 requeues; /* requests that the driver gave back */
	__u64 merges; /* requests that became a part of another one */
	__u64 partial; /* completions of a part of a request */
	__u64 in_flight; /* completions of what was issued before this program ran */
	__u64 unmatched; /* completions of what was never seen to be issued */
	__u64 unended; /* requests used anew whose completion was never seen */
	__u64 negative; /* completions that came before the issue */
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

/* Not inlined, as there are several calls. */
static __noinline void record(struct hist_key *key, __u64 from_ns, __u64 to_ns)
{
	if (to_ns < from_ns)
		counter_add(negative);
	else
		hist_record(key, to_ns - from_ns);
}

static __always_inline void key_add_flags(struct hist_key *key, __u32 cmd_flags)
{
	if (want_operation || want_flags)
		key->op = block_op(cmd_flags);
	if (want_flags)
		key->flags = block_flags(cmd_flags);
}

#include "io.bpf.h"
#include "bios.bpf.h"

static __always_inline int handle_submit(struct request *rq, const bool direct)
{
	if (rq_wanted(rq, direct))
		io_begin(io_find(rq), rq, direct);
	return 0;
}

static __always_inline int handle_insert(struct request *rq, const bool direct)
{
	struct io *io;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_stamped(rq, false, direct);
	if (io && !io->begin_ns)
		io->begin_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int handle_issue(struct request *rq, const bool direct)
{
	struct io *io;

	if (!rq_wanted(rq, direct))
		return 0;
	io = io_stamped(rq, true, direct);
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
	if (born_ns && (!first_issue_ns || born_ns < first_issue_ns))
		counter_add(in_flight);
	else
		counter_add(unmatched);
}

static __always_inline void report(struct io *io, struct request *rq, __u64 now_ns,
				   const bool direct)
{
	struct hist_key key = {};

	if (want_disk)
		key.dev = rq_dev(rq, direct);
	if (want_partition)
		key.part = rq_part_dev(rq, direct);
	if (want_operation || want_flags)
		key_add_flags(&key, block_read(direct, rq, cmd_flags));
	if (want_cgroup)
		key.cgroup_id = io->cgroup_id;
	if (want_stages) {
		key.stage = STAGE_QUEUE;
		record(&key, io->begin_ns, io->issue_ns);
		key.stage = STAGE_DEVICE;
		record(&key, io->issue_ns, now_ns);
		key.stage = STAGE_TOTAL;
	}
	record(&key, want_stages || targ_queued ? io->begin_ns : io->issue_ns, now_ns);
}

static __always_inline int handle_complete(struct request *rq, __u32 error, __u32 nr_bytes,
					   const bool direct)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct io *io;
	bool wanted;

	if (want_bios)
		bios_complete(rq, error, nr_bytes, now_ns, direct);
	if (!rq_wanted(rq, direct))
		return 0;
	io = io_current(rq, direct);
	wanted = io_wanted(io);
	if (wanted && error)
		counter_add(errors);
	if (nr_bytes < block_read(direct, rq, __data_len)) {
		if (wanted)
			counter_add(partial);
		return 0;
	}
	if (!io || !io->issue_ns)
		count_unmatched(rq, nr_bytes, direct);
	else if (wanted)
		report(io, rq, now_ns, direct);
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

/* block_io_start is there from 6.5 on (5a80bd075f3b). */
HOOK(submit, block_io_start, handle_submit((void *)ctx[0], direct))
PROGRAMS(submit__oldbtf, submit__oldraw, block_rq_insert,
	 handle_insert(block_arg(ctx, block_rq_insert), direct))
HOOK(insert, block_rq_insert, handle_insert(block_arg(ctx, block_rq_insert), direct))
HOOK(issue, block_rq_issue, handle_issue(block_arg(ctx, block_rq_issue), direct))
HOOK(requeue, block_rq_requeue, handle_requeue(block_arg(ctx, block_rq_requeue), direct))
HOOK(merge, block_rq_merge, handle_merge(block_arg(ctx, block_rq_merge), direct))
HOOK(complete, block_rq_complete, handle_complete((void *)ctx[0], ctx[1], ctx[2], direct))
HOOK(bioqueue, block_bio_queue, handle_bio_queue(block_arg(ctx, block_bio_queue), direct))
HOOK(biocomplete, block_bio_complete, handle_bio_complete((void *)ctx[1], direct))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
