/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __IRQ_BPF_H
#define __IRQ_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"
#include "task.bpf.h"

/*
 * Interrupt handlers: the hook "handler". A handler is identified by its struct irqaction, so
 * handlers that share an interrupt are distinct. The tool defines irq_handler_ended().
 *
 * Handlers nest: the handler of a GPIO controller calls those of its lines. An interrupt that
 * occurs while another handler runs is possible too, if that handler enables interrupts.
 */

#define IRQ_DEPTH 4

/* A handler that runs. */
struct irq_frame {
	__u64 id;
	__u64 begin_ns; /* CLOCK_MONOTONIC */
	__u64 inner_ns; /* time of the handlers nested in it */
	__u64 wanted; /* by the task filter */
};

/* The handlers that run on a CPU, innermost last. */
struct irq_cpu {
	struct irq_frame frames[IRQ_DEPTH];
	__u64 total_ns; /* time of the handlers that have ended; the time of nested ones counts once */
	__u32 depth;
	__u32 begun; /* a begin was observed */
	/*
	 * Handlers whose end, or begin, was not observed. Programs are detached one after the
	 * other, so these are lost only if another end, or begin, is observed later.
	 */
	__u32 no_end;
	__u32 no_begin;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct irq_cpu);
} irq_cpus SEC(".maps");

/* A handler that has ended. */
struct irq_span {
	__u64 ns; /* without the handlers nested in it */
	bool wanted;
};

/* Defined by the tool. ret is the result of the handler: enum irqreturn. */
static __always_inline void irq_handler_ended(const struct irq_span *span, __u32 irq,
					      struct irqaction *action, __u32 ret);

static __always_inline struct irq_cpu *irq_this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&irq_cpus, &zero);
}

/* Returns the index of the innermost frame with this ID, IRQ_DEPTH if there is none. */
static __always_inline __u32 irq_find(const struct irq_cpu *cpu, __u64 id)
{
	__u32 found = IRQ_DEPTH;

	for (__u32 i = 0; i < IRQ_DEPTH; i++) {
		if (i < cpu->depth && cpu->frames[i].id == id)
			found = i;
	}
	return found;
}

/* The mask tells the verifier that the index is in the array. */
static __always_inline struct irq_frame *irq_frame(struct irq_cpu *cpu, __u64 i)
{
	barrier_var(i);
	return &cpu->frames[i & (IRQ_DEPTH - 1)];
}

/*
 * A handler does not nest in itself: if it is already there, its end was not observed. A handler
 * that is nested too deeply has no frame: its begin counts as not observed.
 */
static __always_inline void irq_begin(__u64 id)
{
	struct irq_cpu *cpu = irq_this_cpu();
	struct irq_frame *frame;
	__u32 depth;

	if (!cpu)
		return;
	if (cpu->no_begin)
		lost_add_n(unobserved, cpu->no_begin);
	cpu->no_begin = 0;
	cpu->begun = true;
	depth = irq_find(cpu, id);
	if (depth < cpu->depth)
		cpu->no_end += cpu->depth - depth;
	else
		depth = cpu->depth;
	if (depth >= IRQ_DEPTH)
		return;
	cpu->depth = depth + 1;
	frame = irq_frame(cpu, depth);
	frame->id = id;
	frame->inner_ns = 0;
	frame->wanted = task_current_wanted();
	frame->begin_ns = bpf_ktime_get_ns();
}

/*
 * Returns whether the begin was observed. The end of a handler that began before the first observed
 * begin on this CPU is not a loss.
 */
static __always_inline bool irq_end(__u64 id, struct irq_span *span)
{
	__u64 now_ns = bpf_ktime_get_ns(), elapsed_ns;
	struct irq_cpu *cpu = irq_this_cpu();
	struct irq_frame *frame;
	__u32 found, lost_ends;

	if (!cpu)
		return false;
	lost_ends = cpu->no_end;
	cpu->no_end = 0;
	found = irq_find(cpu, id);
	if (found < IRQ_DEPTH) {
		lost_ends += cpu->depth - found - 1;
		cpu->depth = found;
	} else if (cpu->begun) {
		cpu->no_begin++;
	}
	if (lost_ends)
		lost_add_n(unobserved, lost_ends);
	if (found >= IRQ_DEPTH)
		return false;
	frame = irq_frame(cpu, found);
	elapsed_ns = now_ns - frame->begin_ns;
	span->ns = elapsed_ns > frame->inner_ns ? elapsed_ns - frame->inner_ns : 0;
	span->wanted = frame->wanted;
	if (found)
		irq_frame(cpu, found - 1)->inner_ns += elapsed_ns;
	else
		cpu->total_ns += elapsed_ns;
	return true;
}

static __always_inline int irq_handler_end(__u32 irq, struct irqaction *action, __u32 ret)
{
	struct irq_span span;

	if (irq_end((__u64)action, &span))
		irq_handler_ended(&span, irq, action, ret);
	return 0;
}

/* Attached in alphabetical order, so that the end of each observed begin is observed. */
SEC("tp_btf/irq_handler_exit")
int BPF_PROG(handler__btf__done, int irq, struct irqaction *action, int ret)
{
	return irq_handler_end(irq, action, ret);
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(handler__btf__start, int irq, struct irqaction *action)
{
	irq_begin((__u64)action);
	return 0;
}

SEC("raw_tp/irq_handler_exit")
int BPF_PROG(handler__raw__done, int irq, struct irqaction *action, int ret)
{
	return irq_handler_end(irq, action, ret);
}

SEC("raw_tp/irq_handler_entry")
int BPF_PROG(handler__raw__start, int irq, struct irqaction *action)
{
	irq_begin((__u64)action);
	return 0;
}

#endif
