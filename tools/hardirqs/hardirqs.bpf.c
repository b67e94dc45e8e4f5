// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "irq.bpf.h"

#define IRQ_NAME_LEN 32

/* Only this CPU; -1 for all. */
const volatile __s32 targ_cpu = -1;
/* Count into histograms instead of the table. */
const volatile bool targ_dist = false;
const volatile bool by_cpu = false;

struct table_key {
	__u32 irq;
	__u32 cpu; /* if by_cpu */
	char name[IRQ_NAME_LEN];
};

struct hist_key {
	__u32 irq;
	__u32 cpu;
	char name[IRQ_NAME_LEN];
};

struct table_value {
	__u64 count;
	__u64 total_ns;
	__u64 unhandled; /* IRQ_NONE */
	__u64 woken; /* IRQ_WAKE_THREAD */
	__u64 max_ns; /* the largest, not a sum */
};

#include "hist.bpf.h"
#include "table.bpf.h"

static __always_inline void count_handler(const struct table_key *key, __u64 ns, __u32 ret)
{
	struct table_value *value = table_find(key);

	if (!value)
		return;
	table_add(value, count, 1);
	table_add(value, total_ns, ns);
	if (ret == IRQ_NONE)
		table_add(value, unhandled, 1);
	if (ret & IRQ_WAKE_THREAD)
		table_add(value, woken, 1);
	if (ns > value->max_ns)
		value->max_ns = ns;
}

static __always_inline void irq_handler_ended(const struct irq_span *span, __u32 irq,
					      struct irqaction *action, __u32 ret)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct table_key key = { .irq = irq };

	if (!span->wanted || (targ_cpu >= 0 && cpu != targ_cpu))
		return;
	if (by_cpu)
		key.cpu = cpu;
	bpf_probe_read_kernel_str(key.name, sizeof(key.name), BPF_CORE_READ(action, name));
	if (targ_dist)
		hist_record((struct hist_key *)&key, span->ns);
	else
		count_handler(&key, span->ns, ret);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
