// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"

#define FRAMES_MAX 24

/* Only sections of at least this length. */
const volatile __u64 targ_min_ns = 100000;

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u64 start_ip; /* code that disables, and its caller */
	__u64 start_parent_ip;
	__u64 end_ip; /* code that enables, and its caller */
	__u64 end_parent_ip;
	__u32 cpu;
	__u32 frames;
	__u64 stack[FRAMES_MAX]; /* at the end */
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* A CPU on which interrupts or preemption are disabled. */
struct section {
	__u64 since_ns; /* CLOCK_MONOTONIC, 0 if they are enabled */
	__u64 ip;
	__u64 parent_ip;
	__u64 idle; /* the CPU is idle, which is no section */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct section);
} sections SEC(".maps");

static __always_inline struct section *this_section(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sections, &zero);
}

/* Disabled again within a section: the section continues. */
static __always_inline int handle_disable(__u64 ip, __u64 parent_ip)
{
	struct section *s = this_section();

	if (!s || s->since_ns || s->idle)
		return 0;
	s->ip = ip;
	s->parent_ip = parent_ip;
	s->since_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int handle_enable(void *ctx, __u64 ip, __u64 parent_ip)
{
	__u64 now_ns = bpf_ktime_get_ns(), since_ns;
	struct section *s = this_section();
	struct event e = {};
	long size;

	if (!s || !s->since_ns)
		return 0;
	since_ns = s->since_ns;
	s->since_ns = 0;
	if (now_ns - since_ns < targ_min_ns || !task_current_wanted())
		return 0;
	e.delta_ns = now_ns - since_ns;
	e.start_ip = s->ip;
	e.start_parent_ip = s->parent_ip;
	e.end_ip = ip;
	e.end_parent_ip = parent_ip;
	e.cpu = bpf_get_smp_processor_id();
	size = bpf_get_stack(ctx, e.stack, sizeof(e.stack), 0);
	e.frames = size > 0 ? size / sizeof(e.stack[0]) : 0;
	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

/* -1 is the end of the idle state. */
static __always_inline int handle_idle(__u32 state)
{
	struct section *s = this_section();

	if (s) {
		s->idle = state != (__u32)-1;
		s->since_ns = 0;
	}
	return 0;
}

SEC("tp_btf/irq_enable")
int BPF_PROG(irq__btf__enable, unsigned long ip, unsigned long parent_ip)
{
	return handle_enable(ctx, ip, parent_ip);
}

SEC("tp_btf/irq_disable")
int BPF_PROG(irq__btf__disable, unsigned long ip, unsigned long parent_ip)
{
	return handle_disable(ip, parent_ip);
}

SEC("raw_tp/irq_enable")
int BPF_PROG(irq__raw__enable, unsigned long ip, unsigned long parent_ip)
{
	return handle_enable(ctx, ip, parent_ip);
}

SEC("raw_tp/irq_disable")
int BPF_PROG(irq__raw__disable, unsigned long ip, unsigned long parent_ip)
{
	return handle_disable(ip, parent_ip);
}

SEC("tp_btf/preempt_enable")
int BPF_PROG(preempt__btf__enable, unsigned long ip, unsigned long parent_ip)
{
	return handle_enable(ctx, ip, parent_ip);
}

SEC("tp_btf/preempt_disable")
int BPF_PROG(preempt__btf__disable, unsigned long ip, unsigned long parent_ip)
{
	return handle_disable(ip, parent_ip);
}

SEC("raw_tp/preempt_enable")
int BPF_PROG(preempt__raw__enable, unsigned long ip, unsigned long parent_ip)
{
	return handle_enable(ctx, ip, parent_ip);
}

SEC("raw_tp/preempt_disable")
int BPF_PROG(preempt__raw__disable, unsigned long ip, unsigned long parent_ip)
{
	return handle_disable(ip, parent_ip);
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(idle__btf, unsigned int state)
{
	return handle_idle(state);
}

SEC("raw_tp/cpu_idle")
int BPF_PROG(idle__raw, unsigned int state)
{
	return handle_idle(state);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
