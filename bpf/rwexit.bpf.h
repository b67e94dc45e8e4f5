/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __RWEXIT_BPF_H
#define __RWEXIT_BPF_H

#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "path.bpf.h"
#include "rw.bpf.h"
#include "task.bpf.h"

/*
 * Successful reads and writes of files, as system calls that return. The tool defines rw_done(),
 * which is called for each file that a call has read or written. RW_COUNTERS are its own counters.
 */

static __always_inline void rw_done(struct file *file, bool is_write, __u64 bytes);

#ifndef RW_COUNTERS
#define RW_COUNTERS
#endif

struct counters {
	__u64 closed; /* calls whose descriptor was closed before they returned */
	RW_COUNTERS
};

#include "counters.bpf.h"

static __always_inline void rw_file_done(__u32 fd, bool is_write, __u64 bytes)
{
	struct file *file = task_file(task_current(), fd);

	if (file)
		rw_done(file, is_write, bytes);
	else
		counter_add(closed);
}

static __always_inline int rw_exit(struct pt_regs *regs, __s32 nr, bool compat, long ret)
{
	struct rw_call call;

	if (compat)
		ret = (__s32)ret;
	if (nr < 0 || ret < 0)
		return 0;
	call = rw_call(nr & ~__X32_SYSCALL_BIT, compat);
	if (call.from < 0 && call.to < 0)
		return 0;
	if (!task_current_wanted())
		return 0;
	preempt_off();
	if (call.from >= 0)
		rw_file_done(syscall_arg(regs, call.from, compat), false, ret);
	if (call.to >= 0)
		rw_file_done(syscall_arg(regs, call.to, compat), true, ret);
	preempt_on();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(exit__btf, struct pt_regs *regs, long ret)
{
	return rw_exit(regs, SYSCALL_NR(regs), syscall_is_compat_btf(regs), ret);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(exit__raw, struct pt_regs *regs, long ret)
{
	return rw_exit(regs, syscall_nr(regs), syscall_is_compat(regs), ret);
}

SEC("tp/raw_syscalls/sys_exit")
int exit__tp(struct trace_event_raw_sys_exit *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return rw_exit(regs, syscall_number(ctx->id), syscall_is_compat(regs), ctx->ret);
}

#endif
