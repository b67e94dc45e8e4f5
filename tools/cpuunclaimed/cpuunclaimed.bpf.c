// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "percpu.bpf.h"
#include "runqueue.bpf.h"
#include "samples.bpf.h"

/* Sums over all samples. A sample looks at all online CPUs. */
struct totals {
	__u64 samples;
	__u64 cpus;
	__u64 busy; /* CPUs with a runnable task, which runs */
	__u64 waiting; /* further runnable tasks */
	__u64 unclaimed; /* idle CPUs that waiting tasks could use */
};

#include "totals.bpf.h"

/* The run queue of a CPU, given that of this CPU: both are copies of a per-CPU variable. */
static __always_inline struct rq *runqueue_of(__u32 cpu, struct rq *here)
{
	return (void *)here - cpu_offset(bpf_get_smp_processor_id()) + cpu_offset(cpu);
}

static __always_inline bool is_online(struct rq *rq)
{
	return !bpf_core_field_exists(rq->online) || BPF_CORE_READ(rq, online);
}

SEC("perf_event")
int sample__perf(void *ctx)
{
	struct rq *here = runqueue_current(), *rq;
	__u64 cpus = 0, busy = 0, waiting = 0, idle;
	__u32 runnable;

	sample_count();
	for (__u32 cpu = 0; cpu < PERCPU_MAX; cpu++) {
		if (cpu >= percpu_nr)
			break;
		rq = runqueue_of(cpu, here);
		if (!is_online(rq))
			continue;
		cpus++;
		runnable = runqueue_runnable(rq);
		if (!runnable)
			continue;
		busy++;
		waiting += runnable - 1;
	}
	idle = cpus - busy;
	totals_add(samples, 1);
	totals_add(cpus, cpus);
	totals_add(busy, busy);
	totals_add(waiting, waiting);
	totals_add(unclaimed, waiting < idle ? waiting : idle);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
