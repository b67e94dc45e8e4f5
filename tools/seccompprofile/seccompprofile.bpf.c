/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "command.bpf.h"
#include "compat.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

struct table_key {
	__u32 nr;
	enum syscall_abi abi;
};

struct table_value {
	__u64 count;
};

#include "table.bpf.h"

/*
 * A call counts at its entry, because some calls do not return: exit, exit_group, rt_sigreturn. A
 * filter of seccomp runs before this, so calls that it refuses are not observed.
 */
static __always_inline int handle_enter(__s32 nr, bool compat)
{
	struct table_key key = {};
	struct table_value *value;

	if (nr < 0 || !task_current_wanted())
		return 0;
	key.abi = syscall_abi(nr, compat);
	key.nr = nr & ~__X32_SYSCALL_BIT;
	value = table_find(&key);
	if (value)
		table_add(value, count, 1);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter__btf, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(syscall_number(nr), syscall_is_compat_btf(regs)));
}

SEC("raw_tp/sys_enter")
int BPF_PROG(enter__raw, struct pt_regs *regs, long nr)
{
	return NOT_PREEMPTED(handle_enter(syscall_number(nr), syscall_is_compat(regs)));
}

SEC("tp/raw_syscalls/sys_enter")
int enter__tp(struct trace_event_raw_sys_enter *ctx)
{
	return NOT_PREEMPTED(handle_enter(syscall_number(ctx->id), syscall_is_compat(syscall_regs())));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
