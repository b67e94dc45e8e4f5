// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"
#include "taskhist.bpf.h"

/* Measure the time off the CPU instead. */
const volatile bool targ_offcpu = false;
/* Include idle tasks (TID 0), one per CPU. */
const volatile bool targ_idle = false;

#define TASK_DEAD_STATE 0x80

/* The last switch of a CPU. */
struct cpu_state {
	__u64 switch_ns; /* CLOCK_MONOTONIC, 0 before the first one that was observed */
	__u64 idle_left_ns; /* when the idle task left the CPU, 0 while it runs */
	__u32 tid; /* of the task that runs since then */
	__u32 wanted; /* that task is measured */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

/* Instead of a time: the switch of a CPU to the task was the last one observed. */
#define TASK_RUNS 1

/*
 * When a task left a CPU, by thread ID: CLOCK_MONOTONIC, 0 if it has not been observed or was not
 * wanted, TASK_RUNS while it runs. User space
 * sizes the array for all possible IDs. It is an array for the reasons given for sched_waits
 * (sched.bpf.h).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 22);
	__type(key, __u32);
	__type(value, __u64);
} tasks_left SEC(".maps") USER_SPACE;

static __always_inline bool dist_wanted(struct task_struct *p, __u32 tid)
{
	return (tid || targ_idle) && task_wanted(p);
}

/*
 * prev ran on this CPU since its last switch, unless the switch to prev was not observed. Then the
 * end of the time of the task before it was not observed either.
 */
static __always_inline void count_oncpu(struct cpu_state *cpu, struct task_struct *prev, __u32 tid,
					__u64 now_ns)
{
	bool wanted = dist_wanted(prev, tid);

	if (!cpu->switch_ns)
		return;
	if (cpu->tid != tid)
		lost_add_n(unobserved, (cpu->wanted != 0) + wanted);
	else if (wanted)
		taskhist_record(prev, 0, now_ns - cpu->switch_ns);
}

static __always_inline __u64 *left_of(struct cpu_state *cpu, __u32 tid)
{
	return tid ? bpf_map_lookup_elem(&tasks_left, &tid) : &cpu->idle_left_ns;
}

/* A task that has exited never runs again, and another one can have its ID. */
static __always_inline void note_left(struct cpu_state *cpu, struct task_struct *prev, __u32 tid,
				      bool dead, __u64 now_ns)
{
	__u64 *left = left_of(cpu, tid);
	bool wanted = dist_wanted(prev, tid);

	if (!left) {
		if (wanted)
			lost_add(map_full);
		return;
	}
	if (*left > TASK_RUNS)
		lost_add(unobserved);
	*left = wanted && !dead ? now_ns : 0;
}

static __always_inline void count_offcpu(struct cpu_state *cpu, struct task_struct *next, __u32 tid,
					 __u64 now_ns)
{
	__u64 *left = left_of(cpu, tid);
	__u64 since_ns;

	if (!left)
		return;
	since_ns = *left;
	*left = TASK_RUNS;
	if (since_ns == TASK_RUNS && dist_wanted(next, tid))
		lost_add(unobserved);
	if (since_ns <= TASK_RUNS)
		return;
	/* The clocks of two CPUs can differ by some ns while NTP adjusts them. */
	taskhist_record(next, 0, now_ns > since_ns ? now_ns - since_ns : 0);
}

static __always_inline int handle_switch(bool preempt, struct task_struct *prev, __u32 prev_tid,
					 struct task_struct *next, __u32 next_tid)
{
	__u32 zero = 0;
	struct cpu_state *cpu = bpf_map_lookup_elem(&cpu_states, &zero);
	__u64 now_ns = bpf_ktime_get_ns();

	if (!cpu)
		return 0;
	if (targ_offcpu) {
		bool dead = !preempt && task_state(prev) & TASK_DEAD_STATE;

		note_left(cpu, prev, prev_tid, dead, now_ns);
		count_offcpu(cpu, next, next_tid, now_ns);
		return 0;
	}
	count_oncpu(cpu, prev, prev_tid, now_ns);
	cpu->switch_ns = now_ns;
	cpu->tid = next_tid;
	cpu->wanted = dist_wanted(next, next_tid);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switch__btf, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return handle_switch(preempt, prev, prev->pid, next, next->pid);
}

SEC("raw_tp/sched_switch")
int BPF_PROG(switch__raw, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return handle_switch(preempt, prev, BPF_CORE_READ(prev, pid), next,
			     BPF_CORE_READ(next, pid));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
