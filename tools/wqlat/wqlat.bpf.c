// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"
#include "map.bpf.h"
#include "task.bpf.h"

#define WQ_NAME_MAX 32 /* WQ_NAME_LEN of the kernel: 24, from 6.9 on 32 */

/* Group histograms by these; the other members of the key are 0. */
const volatile bool by_workqueue = false;
const volatile bool by_function = false;
/* Only the workqueue of this name. */
const volatile __u32 targ_workqueue_len = 0;
const volatile char targ_workqueue[WQ_NAME_MAX] = {};

struct hist_key {
	__u64 function;
	char workqueue[WQ_NAME_MAX];
};

#include "hist.bpf.h"

struct counters {
	__u64 waiting; /* works that were queued and had not begun when the run ended */
	__u64 cancelled; /* works that were queued, and then cancelled */
	__u64 no_queue; /* works that began and were not observed to be queued */
};

#include "counters.bpf.h"

/* A work that is queued and has not begun to run. */
struct queued_work {
	__u64 since_ns; /* CLOCK_MONOTONIC */
	char workqueue[WQ_NAME_MAX]; /* if it is needed */
};

/*
 * Keyed by the address of the struct work_struct. A work that is cancelled leaves its entry behind,
 * until it is queued again, or the run ends.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u64);
	__type(value, struct queued_work);
} queued SEC(".maps") USER_SPACE;

static __always_inline bool workqueue_wanted(const char *name)
{
	for (int i = 0; i < WQ_NAME_MAX; i++) {
		if (name[i] != targ_workqueue[i])
			return false;
		if (!name[i])
			break;
	}
	return true;
}

/* Sets the name of the workqueue if it is needed. */
static __always_inline bool queue_wanted(struct queued_work *q, struct pool_workqueue *pwq)
{
	struct workqueue_struct *wq;

	if (!task_current_wanted())
		return false;
	if (!by_workqueue && !targ_workqueue_len)
		return true;
	wq = BPF_CORE_READ(pwq, wq);
	bpf_probe_read_kernel_str(q->workqueue, sizeof(q->workqueue),
				  __builtin_preserve_access_index(&wq->name));
	return !targ_workqueue_len || workqueue_wanted(q->workqueue);
}

/* A work that is not wanted replaces one at the same address, which was cancelled, too. */
static __always_inline int handle_queue(struct pool_workqueue *pwq, struct work_struct *work)
{
	struct queued_work q = {};
	__u64 id = (__u64)work;

	if (!queue_wanted(&q, pwq)) {
		bpf_map_delete_elem(&queued, &id);
		return 0;
	}
	q.since_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&queued, &id, &q, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int handle_start(struct work_struct *work)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 id = (__u64)work;
	struct queued_work *q = bpf_map_lookup_elem(&queued, &id);
	struct hist_key key = {};
	__u64 since_ns;

	if (!q) {
		/* Of works that are not wanted nothing is noted. */
		if (!task_filter && !targ_workqueue_len)
			counter_add(no_queue);
		return 0;
	}
	since_ns = q->since_ns;
	if (by_workqueue)
		__builtin_memcpy(key.workqueue, q->workqueue, sizeof(key.workqueue));
	if (by_function)
		key.function = (__u64)BPF_CORE_READ(work, func);
	bpf_map_delete_elem(&queued, &id);
	/* The clocks of two CPUs can differ by some ns while NTP adjusts them. */
	hist_record(&key, now_ns > since_ns ? now_ns - since_ns : 0);
	return 0;
}

/*
 * Called for each entry at the end of the run. The kernel sets the bit when it queues a work, and
 * clears it when the work begins or is cancelled. The memory can have another use by now; then the
 * work was cancelled as well.
 */
SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	__u64 *id = ctx->key;
	struct work_struct *work;

	if (!id || !ctx->value)
		return 0;
	work = (struct work_struct *)*id;
	if (BPF_CORE_READ(work, data.counter) & 1)
		counter_add(waiting);
	else
		counter_add(cancelled);
	return 0;
}

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(queue__btf, int cpu, struct pool_workqueue *pwq, struct work_struct *work)
{
	return handle_queue(pwq, work);
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(start__btf, struct work_struct *work)
{
	return handle_start(work);
}

SEC("raw_tp/workqueue_queue_work")
int BPF_PROG(queue__raw, int cpu, struct pool_workqueue *pwq, struct work_struct *work)
{
	return handle_queue(pwq, work);
}

SEC("raw_tp/workqueue_execute_start")
int BPF_PROG(start__raw, struct work_struct *work)
{
	return handle_start(work);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
