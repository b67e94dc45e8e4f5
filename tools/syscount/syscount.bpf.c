// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

#define MAX_ERRNO 4095

/* What tells rows apart; the rest of the key stays 0. */
const volatile bool by_syscall = true;
const volatile bool by_pid = false;
const volatile bool by_cgroup = false;
const volatile bool want_latency = false;
/* Only calls that failed, or did so with this errno. */
const volatile bool targ_failed = false;
const volatile __u32 targ_errno = 0;
/* Only children of this process. */
const volatile __u32 targ_ppid = 0;
/* Only this call: its number for each ABI, -1 where that has none. */
const volatile bool targ_by_syscall = false;
const volatile __s32 targ_syscall[3] = {};

struct table_key {
	__u64 cgroup_id;
	__u32 nr;
	__u32 abi;
	__u32 pid;
	char comm[TASK_COMM_LEN]; /* of the process */
	__u32 pad;
};

struct table_value {
	__u64 count;
	__u64 errors;
	__u64 total_ns;
};

#include "table.bpf.h"

struct counters {
	__u64 no_entry; /* calls with a latency that is not known, as their entry was not seen */
};

#include "counters.bpf.h"

/*
 * When the thread entered its call, by its id: CLOCK_MONOTONIC, 0 when it is in none.
 * User space makes room for every id that there may be, so nothing is left out, and
 * what a thread that ended in a call has left behind is gone with the next of that id.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 22);
	__type(key, __u32);
	__type(value, __u64);
} entries SEC(".maps");

static __always_inline bool is_exec(__s32 nr, bool compat)
{
	if (compat)
		return nr == NR_compat_execve || nr == NR_compat_execveat;
	return nr == NR_execve || nr == NR_execveat;
}

/*
 * A thread that executes a program takes the id of its process, whose first thread ends
 * in whatever call it is: that one's entry is not the end's.
 */
static __always_inline int handle_enter(__s32 nr)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = id, pid = id >> 32;
	__u64 *entry = bpf_map_lookup_elem(&entries, &tid);

	if (entry)
		*entry = bpf_ktime_get_ns();
	else
		lost_add(map_full);
	if (tid != pid && (is_exec(nr, false) || is_exec(nr, true))) {
		entry = bpf_map_lookup_elem(&entries, &pid);
		if (entry)
			*entry = 0;
	}
	return 0;
}

/* Returns how long the call took, 0 where that is not known. */
static __always_inline __u64 end_entry(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 *entry = bpf_map_lookup_elem(&entries, &tid);
	__u64 begin, now = bpf_ktime_get_ns();

	if (!entry || !*entry)
		return 0;
	begin = *entry;
	*entry = 0;
	return now > begin ? now - begin : 1;
}

static __always_inline bool result_wanted(bool failed, long ret)
{
	if (targ_errno)
		return ret == -(long)targ_errno;
	return failed || !targ_failed;
}

static __always_inline bool task_is_wanted(void)
{
	struct task_struct *task = task_current();

	if (targ_ppid && BPF_CORE_READ(task, real_parent, tgid) != targ_ppid)
		return false;
	return task_current_wanted();
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

static __always_inline int count(__s32 nr, bool compat, long ret)
{
	enum syscall_abi abi = syscall_abi(nr, compat);
	struct table_key key = {};
	struct table_value *value;
	bool failed;
	__u64 ns = 0;

	if (compat)
		ret = (__s32)ret;
	failed = ret < 0 && ret >= -MAX_ERRNO;
	if (want_latency)
		ns = end_entry();
	if (nr < 0) /* the return from a signal's handler */
		return 0;
	nr &= ~__X32_SYSCALL_BIT;
	/* The new task returns from the call that made it as well. */
	if (!ret && syscall_is_fork(nr, compat))
		return 0;
	if (targ_by_syscall && nr != targ_syscall[abi])
		return 0;
	if (!result_wanted(failed, ret) || !task_is_wanted())
		return 0;
	if (want_latency && !ns) {
		counter_add(no_entry);
		return 0;
	}
	fill_key(&key, nr, abi);
	value = table_find(&key);
	if (!value)
		return 0;
	table_add(value, count, 1);
	if (failed)
		table_add(value, errors, 1);
	if (want_latency)
		table_add(value, total_ns, ns);
	return 0;
}

static __always_inline int handle_exit(__s32 nr, bool compat, long ret)
{
	preempt_off();
	count(nr, compat, ret);
	preempt_on();
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter__btf, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(nr));
}

SEC("raw_tp/sys_enter")
int BPF_PROG(enter__raw, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(nr));
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
