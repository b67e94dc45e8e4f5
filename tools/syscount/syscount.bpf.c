// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "command.bpf.h"
#include "compat.bpf.h"
#include "draw.bpf.h"
#include "observing.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

#define MAX_ERRNO 4095

/* Group rows by these; the other members of the key are 0. */
const volatile bool by_syscall = true;
const volatile bool by_pid = false;
const volatile bool by_cgroup = false;
const volatile bool want_latency = false;
/* Rows or filters are by call: the number of an exec call is then kept from its entry. */
const volatile bool want_exec_call = false;
/* Only failed calls, or those that failed with this errno. */
const volatile bool targ_failed = false;
const volatile __u32 targ_errno = 0;
/* Only children of this process. */
const volatile __u32 targ_ppid = 0;
/* Only this system call: its number per ABI, -1 if it has none. */
const volatile bool targ_by_syscall = false;
const volatile __s32 targ_syscall[3] = {};

struct table_key {
	__u64 cgroup_id;
	__u32 nr;
	enum syscall_abi abi;
	__u32 pid;
	char comm[TASK_COMM_LEN]; /* of the process */
	__u32 pad;
};

struct table_value {
	__u64 count;
	__u64 errors;
	__u64 total_ns;
};

/*
 * Rows that are only grouped by call: those of native calls have their number as the index. All
 * numbers are below 512 (x86 uses those from there on for x32).
 */
#define TABLE_INDEXES 512

#include "table.bpf.h"

struct counters {
	__u64 no_entry; /* calls without a latency, because their entry was not observed */
	__u64 exec_without_entry; /* successful execs whose entry was not observed; counted as execve */
};

#include "counters.bpf.h"

/* Instead of a time: the thread is not in a call. */
#define BETWEEN_CALLS 1

/*
 * The time at which a thread entered its call, by thread ID: CLOCK_MONOTONIC, 0 until its first
 * call. User space sizes the array for all possible IDs, so it is never full, and the entry of a
 * thread that ended in a call is overwritten by the next thread with that ID.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 22);
	__type(key, __u32);
	__type(value, __u64);
} entries SEC(".maps");

/*
 * The exec call of a task, from its entry to its return, when the registers no longer contain it:
 * see syscall_may_end_exec(). The key is the task, because its ID changes if a thread other than
 * the leader executes a program. The entry of a task that is killed in the call remains until an
 * exec of a task at the same address replaces it.
 */
struct exec_call {
	__u64 begin_ns; /* 0 without want_latency */
	__s32 nr;
	bool compat;
	__u8 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u64);
	__type(value, struct exec_call);
} exec_calls SEC(".maps");

static __always_inline void begin_latency(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 *entry;

	if (!observing)
		return;
	entry = bpf_map_lookup_elem(&entries, &tid);
	if (entry)
		*entry = bpf_ktime_get_ns();
	else
		lost_add(map_full);
}

static __always_inline void begin_exec(__s32 nr, bool compat)
{
	struct exec_call call = { .nr = nr, .compat = compat };
	__u64 task = bpf_get_current_task();

	if (want_latency && observing)
		call.begin_ns = bpf_ktime_get_ns();
	/* Failures are only known when the call returns: exec_without_entry. */
	if (want_exec_call || want_latency)
		bpf_map_update_elem(&exec_calls, &task, &call, BPF_ANY);
}

static __always_inline int handle_exec(struct pt_regs *regs, __s32 nr, bool btf)
{
	bool compat;

	if (!syscall_is_exec_in_any(nr))
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (syscall_is_exec(nr, compat))
		begin_exec(nr, compat);
	return 0;
}

static __always_inline int handle_enter(struct pt_regs *regs, __s32 nr, bool btf)
{
	begin_latency();
	return handle_exec(regs, nr, btf);
}

static __always_inline bool task_is_wanted(void)
{
	struct task_struct *task = task_current();

	if (targ_ppid && task_local_pid(BPF_CORE_READ(task, real_parent)) != targ_ppid)
		return false;
	return task_current_wanted();
}

/*
 * Replaces number and ABI by those with which the exec call was entered. Returns the time of its entry,
 * 0 if unknown: a thread that executes a program takes over the ID of its process, and with it the entry
 * of the leader, which is still that of the call in which the leader exited.
 */
static __always_inline __u64 restore_exec(__s32 *nr, bool *compat, long ret)
{
	__u64 task = bpf_get_current_task();
	struct exec_call *call = bpf_map_lookup_elem(&exec_calls, &task);
	__u64 begin_ns = 0;

	if (call) {
		begin_ns = call->begin_ns;
		*nr = call->nr;
		*compat = call->compat;
		bpf_map_delete_elem(&exec_calls, &task);
	} else if (want_exec_call && !ret && syscall_is_exec(*nr, *compat) && task_is_wanted()) {
		counter_add(exec_without_entry);
	}
	return begin_ns;
}

/*
 * Returns the duration of the call, 0 if unknown: it was entered before this program was attached,
 * or its entry was not observed. exec_ns is the time of the entry of an exec call.
 */
static __always_inline __u64 end_entry(__u64 exec_ns, bool *missed)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 *entry = bpf_map_lookup_elem(&entries, &tid);
	__u64 begin, now = bpf_ktime_get_ns();

	if (!entry)
		return 0;
	begin = exec_ns ? exec_ns : *entry;
	*entry = observing ? BETWEEN_CALLS : 0;
	*missed = begin == BETWEEN_CALLS && observing;
	if (!begin || begin == BETWEEN_CALLS)
		return 0;
	return now > begin ? now - begin : 1;
}

static __always_inline bool result_wanted(bool failed, long ret)
{
	if (targ_errno)
		return ret == -(long)targ_errno;
	return failed || !targ_failed;
}

static __always_inline void fill_key(struct table_key *key, __s32 nr, enum syscall_abi abi)
{
	struct task_struct *task = task_current();

	if (by_syscall) {
		key->nr = nr;
		key->abi = abi;
	}
	if (by_pid) {
		key->pid = bpf_get_current_pid_tgid() >> 32;
		BPF_CORE_READ_STR_INTO(&key->comm, task, group_leader, comm);
	}
	if (by_cgroup)
		key->cgroup_id = task_current_cgroup_id();
}

static __always_inline struct table_value *find_value(__s32 nr, enum syscall_abi abi)
{
	struct table_key key = {};

	if (table_indexed && abi == SYSCALL_NATIVE && nr < TABLE_INDEXES)
		return table_at(nr);
	fill_key(&key, nr, abi);
	return table_find(&key);
}

static __always_inline int count(__s32 nr, bool compat, long ret, __u64 exec_ns)
{
	enum syscall_abi abi = syscall_abi(nr, compat);
	struct table_value *value;
	bool failed, missed = false;
	__u64 ns = 0, n;
	__u32 shift;

	if (compat)
		ret = (__s32)ret;
	failed = ret < 0 && ret >= -MAX_ERRNO;
	if (want_latency)
		ns = end_entry(exec_ns, &missed);
	if (nr < 0 || !draw_event(&shift)) /* nr is negative when a signal handler returns */
		return 0;
	n = draw_weight(shift);
	nr &= ~__X32_SYSCALL_BIT;
	/* The new task also returns from the call that created it. */
	if (!ret && syscall_is_fork(nr, compat))
		return 0;
	if (targ_by_syscall && nr != targ_syscall[abi])
		return 0;
	if (!result_wanted(failed, ret) || !task_is_wanted())
		return 0;
	if (want_latency && !ns) {
		counter_add(no_entry);
		if (missed)
			lost_add_n(unobserved, n);
		return 0;
	}
	value = find_value(nr, abi);
	if (!value) {
		lost_add_n(map_full, n - 1); /* table_find() has counted one */
		return 0;
	}
	table_add(value, count, n);
	if (failed)
		table_add(value, errors, n);
	if (want_latency)
		table_add(value, total_ns, ns * n);
	return 0;
}

static __always_inline int handle_exit(__s32 nr, bool compat, long ret)
{
	__u64 exec_ns = 0;

	preempt_off();
	if ((want_exec_call || want_latency) && syscall_may_end_exec(nr, compat))
		exec_ns = restore_exec(&nr, &compat, ret);
	count(nr, compat, ret, exec_ns);
	preempt_on();
	return 0;
}

/*
 * The hook exec replaces enter without latency, so that no program runs at the entry of each call.
 * begin_new_exec() runs before an exec replaces the registers and the ABI of the task, and so does the
 * tracepoint in it (6.10 and later). They do not have the registers, which a helper returns from 5.15
 * on.
 */
SEC("fentry/begin_new_exec")
int exec__fentry(void *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return NOT_PREEMPTED(handle_exec(regs, syscall_nr(regs), false));
}

SEC("fentry/begin_new_exec")
int exec__fentry__again(void *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return NOT_PREEMPTED(handle_exec(regs, syscall_nr(regs), false));
}

SEC("tp_btf/sched_prepare_exec")
int exec__btf(void *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return NOT_PREEMPTED(handle_exec(regs, syscall_nr(regs), false));
}

SEC("tp_btf/sched_prepare_exec")
int exec__btf__again(void *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return NOT_PREEMPTED(handle_exec(regs, syscall_nr(regs), false));
}

SEC("raw_tp/sys_enter")
int BPF_PROG(exec__raw, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_exec(regs, syscall_number(nr), false));
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter__btf, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(regs, syscall_number(nr), true));
}

SEC("raw_tp/sys_enter")
int BPF_PROG(enter__raw, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(regs, syscall_number(nr), false));
}

SEC("tp/raw_syscalls/sys_enter")
int enter__tp(struct trace_event_raw_sys_enter *ctx)
{
	return NOT_PREEMPTED(handle_enter(syscall_regs(), syscall_number(ctx->id), false));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(exit__btf, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(SYSCALL_NR(regs), syscall_is_compat_btf(regs), ret));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(exit__raw, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(syscall_nr(regs), syscall_is_compat(regs), ret));
}

SEC("tp/raw_syscalls/sys_exit")
int exit__tp(struct trace_event_raw_sys_exit *ctx)
{
	return NOT_PREEMPTED(handle_exit(syscall_number(ctx->id), syscall_is_compat(syscall_regs()), ctx->ret));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
