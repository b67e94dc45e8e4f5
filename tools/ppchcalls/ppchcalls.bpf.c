// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "observing.bpf.h"
#include "task.bpf.h"

/* Group rows by process instead of by call. */
const volatile bool by_pid = false;
const volatile bool want_latency = false;
/* Only failed calls, or those that failed with this result. */
const volatile bool targ_failed = false;
const volatile __u64 targ_error = 0;
/* Only this call. */
const volatile bool targ_by_opcode = false;
const volatile __u64 targ_opcode = 0;

struct counters {
	__u64 no_entry; /* calls without a latency, because their entry was not observed */
};

#include "counters.bpf.h"

struct table_key {
	__u64 opcode;
	__u32 pid;
	char comm[TASK_COMM_LEN]; /* of the process */
	__u32 pad;
};

struct table_value {
	__u64 count;
	__u64 errors;
	__u64 timed; /* calls with a latency */
	__u64 total_ns;
	__u64 max_ns; /* the largest, not a sum */
	__u64 max_inverse_ns; /* likewise: ~0 minus the smallest latency */
};

#include "table.bpf.h"

/*
 * The calls that a CPU is in: an interrupt can make one during another. The kernel disables preemption
 * from the entry of a call to its return.
 */
#define DEPTH_MAX 4

struct calls {
	__u64 opcode[DEPTH_MAX];
	__u64 ns[DEPTH_MAX]; /* CLOCK_MONOTONIC, 0 for a free slot */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct calls);
} calls SEC(".maps");

static __always_inline struct calls *calls_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&calls, &zero);
}

static __always_inline int begin(__u64 opcode)
{
	struct calls *here = calls_here();

	if (!here || !observing)
		return 0;
	for (int i = 0; i < DEPTH_MAX; i++) {
		if (here->ns[i])
			continue;
		here->opcode[i] = opcode;
		here->ns[i] = bpf_ktime_get_ns();
		return 0;
	}
	lost_add(map_full);
	return 0;
}

/*
 * take returns the time at which the innermost call began, or 0 if it is not that call, and removes the
 * call.
 */
static __always_inline __u64 take(__u64 opcode)
{
	struct calls *here = calls_here();
	__u64 ns;

	if (!here)
		return 0;
	for (int i = DEPTH_MAX - 1; i >= 0; i--) {
		ns = here->ns[i];
		if (!ns)
			continue;
		if (here->opcode[i] != opcode)
			return 0;
		here->ns[i] = 0;
		return ns;
	}
	return 0;
}

static __always_inline bool result_wanted(__s64 result)
{
	if (targ_error)
		return result == -(__s64)targ_error;
	return result < 0 || !targ_failed;
}

static __always_inline void add_latency(struct table_value *value, __u64 begin_ns, __u64 now_ns)
{
	__u64 ns = now_ns - begin_ns;

	table_add(value, timed, 1);
	table_add(value, total_ns, ns);
	if (ns > value->max_ns)
		value->max_ns = ns;
	if (~ns > value->max_inverse_ns)
		value->max_inverse_ns = ~ns;
}

static __always_inline int end(__u64 opcode, __s64 result)
{
	__u64 now_ns = bpf_ktime_get_ns(), begin_ns = want_latency ? take(opcode) : 0;
	struct task_struct *task = task_current();
	struct table_key key = {};
	struct table_value *value;

	if (!observing || (targ_by_opcode && opcode != targ_opcode))
		return 0;
	if (!result_wanted(result) || !task_current_wanted())
		return 0;
	if (by_pid) {
		key.pid = bpf_get_current_pid_tgid() >> 32;
		BPF_CORE_READ_STR_INTO(&key.comm, task, group_leader, comm);
	} else {
		key.opcode = opcode;
	}
	value = table_find(&key);
	if (!value)
		return 0;
	table_add(value, count, 1);
	if (result < 0)
		table_add(value, errors, 1);
	if (begin_ns)
		add_latency(value, begin_ns, now_ns);
	else if (want_latency)
		counter_add(no_entry);
	return 0;
}

SEC("tp_btf/hcall_entry")
int BPF_PROG(entry__btf, unsigned long opcode)
{
	return begin(opcode);
}

SEC("raw_tp/hcall_entry")
int BPF_PROG(entry__raw, unsigned long opcode)
{
	return begin(opcode);
}

SEC("tp_btf/hcall_exit")
int BPF_PROG(exit__btf, unsigned long opcode, long result)
{
	return end(opcode, result);
}

SEC("raw_tp/hcall_exit")
int BPF_PROG(exit__raw, unsigned long opcode, long result)
{
	return end(opcode, result);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
