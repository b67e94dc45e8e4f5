// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "irq.bpf.h"
#include "softirq.bpf.h"

/* Only this CPU; -1 for all. */
const volatile __s32 targ_cpu = -1;
/* Count into histograms instead of the table. */
const volatile bool targ_dist = false;
const volatile bool by_cpu = false;

struct table_key {
	__u32 vec;
	__u32 cpu; /* if by_cpu */
};

struct hist_key {
	__u32 vec;
	__u32 cpu;
};

struct table_value {
	__u64 count;
	__u64 total_ns;
	__u64 irq_ns;
	__u64 max_ns; /* the largest, not a sum */
};

#include "hist.bpf.h"
#include "table.bpf.h"

/* Time in interrupt handlers on this CPU so far. */
static __always_inline __u64 handlers_ns(void)
{
	struct irq_cpu *cpu = irq_this_cpu();

	return cpu ? cpu->total_ns : 0;
}

static __always_inline void irq_handler_ended(const struct irq_span *span, __u32 irq,
					      struct irqaction *action, __u32 ret)
{
}

static __always_inline void softirq_begun(void *ctx, __u32 vec, struct softirq_run *run)
{
	run->irq_ns = handlers_ns();
}

static __always_inline void count_softirq(const struct table_key *key, __u64 ns, __u64 irq_ns)
{
	struct table_value *value = table_find(key);

	if (!value)
		return;
	table_add(value, count, 1);
	table_add(value, total_ns, ns);
	table_add(value, irq_ns, irq_ns);
	if (ns > value->max_ns)
		value->max_ns = ns;
}

static __always_inline void softirq_ended(void *ctx, __u32 vec, struct softirq_run *run, __u64 ns)
{
	__u64 irq_ns = handlers_ns() - run->irq_ns;
	__u32 cpu = bpf_get_smp_processor_id();
	struct table_key key = { .vec = vec };

	if ((targ_cpu >= 0 && cpu != targ_cpu) || !task_current_wanted())
		return;
	if (by_cpu)
		key.cpu = cpu;
	ns = ns > irq_ns ? ns - irq_ns : 0;
	if (targ_dist)
		hist_record((struct hist_key *)&key, ns);
	else
		count_softirq(&key, ns, irq_ns);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
