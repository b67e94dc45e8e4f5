/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __RUNQUEUE_BPF_H
#define __RUNQUEUE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/* The run queue of a CPU, as seen by a program that samples it in an interrupt. */

/*
 * From 6.12 on (152e11f6df29) a sleeping task can stay on the run queue for a while (delayed
 * dequeue), and nr_running still contains it. The number of these tasks is h_nr_delayed from 6.12.7
 * on (76f2f783294d), then the difference between h_nr_queued (7b8a702d9438) and h_nr_runnable
 * (c2a295bffeaf, 6.14 and 6.12.37). In 6.12.0 to 6.12.6 it is unknown.
 */
struct cfs_rq___delayed {
	unsigned int h_nr_delayed;
} __attribute__((preserve_access_index));

static __always_inline __u32 runqueue_delayed(struct rq *rq)
{
	struct cfs_rq *cfs = __builtin_preserve_access_index(&rq->cfs);
	struct cfs_rq___delayed *old = (void *)cfs;
	__u32 queued, runnable;

	if (bpf_core_field_exists(cfs->h_nr_runnable)) {
		queued = BPF_CORE_READ(cfs, h_nr_queued);
		runnable = BPF_CORE_READ(cfs, h_nr_runnable);
		return queued > runnable ? queued - runnable : 0;
	}
	if (bpf_core_field_exists(old->h_nr_delayed))
		return BPF_CORE_READ(old, h_nr_delayed);
	return 0;
}

/*
 * The number of runnable tasks of all scheduling classes and cgroups, including the one that runs.
 * Another CPU can change it at any time.
 */
static __always_inline __u32 runqueue_runnable(struct rq *rq)
{
	__u32 nr = BPF_CORE_READ(rq, nr_running), delayed = runqueue_delayed(rq);

	return nr > delayed ? nr - delayed : 0;
}

/*
 * The run queue of the current CPU: that of the current task, which can be the idle task. A kernel
 * without CONFIG_FAIR_GROUP_SCHED has no such pointers.
 */
static __always_inline struct rq *runqueue_current(void)
{
	return BPF_CORE_READ(task_current(), se.cfs_rq, rq);
}

#endif
