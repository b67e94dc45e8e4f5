// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "fscall.bpf.h"
#include "path.bpf.h"
#include "rw.bpf.h"
#include "task.bpf.h"

#define EBADF 9
#define AT_REMOVEDIR 0x200
#define FMODE_CREATED (1 << 20)

struct totals {
	__u64 reads;
	__u64 writes;
	__u64 fsyncs;
	__u64 opens;
	__u64 creates;
	__u64 unlinks;
	__u64 mkdirs;
	__u64 rmdirs;
};

#include "totals.bpf.h"

/* Whether the open created the file. */
static __always_inline void count_open(struct file *file)
{
	totals_add(opens, 1);
	if (file && BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
		totals_add(creates, 1);
}

/* A read or write counts if its descriptor is open, because it then reaches the VFS. */
static __always_inline void count_rw(struct rw_call call, long ret)
{
	if (ret == -EBADF)
		return;
	if (call.from >= 0)
		totals_add(reads, 1);
	if (call.to >= 0)
		totals_add(writes, 1);
}

/* Changes of directories count if they succeed. */
static __always_inline void count_change(enum fs_call call, struct pt_regs *regs, bool compat)
{
	if (call == FS_CALL_UNLINKAT)
		call = syscall_arg(regs, 2, compat) & AT_REMOVEDIR ? FS_CALL_RMDIR : FS_CALL_UNLINK;
	if (call == FS_CALL_UNLINK)
		totals_add(unlinks, 1);
	else if (call == FS_CALL_MKDIR)
		totals_add(mkdirs, 1);
	else if (call == FS_CALL_RMDIR)
		totals_add(rmdirs, 1);
}

static __always_inline int handle_exit(struct pt_regs *regs, __s32 nr, bool compat, long ret)
{
	struct rw_call rw;
	enum fs_call call;

	if (compat)
		ret = (__s32)ret;
	if (nr < 0)
		return 0;
	nr &= ~__X32_SYSCALL_BIT;
	rw = rw_call(nr, compat);
	call = fs_call(nr, compat);
	if ((rw.from < 0 && rw.to < 0 && call == FS_CALL_NONE) || !task_current_wanted())
		return 0;
	count_rw(rw, ret);
	if (call == FS_CALL_FSYNC && ret != -EBADF)
		totals_add(fsyncs, 1);
	if (call == FS_CALL_OPEN && ret >= 0)
		count_open(task_file(task_current(), ret));
	else if (ret >= 0)
		count_change(call, regs, compat);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(exit__btf, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(regs, SYSCALL_NR(regs), syscall_is_compat_btf(regs), ret));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(exit__raw, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(regs, syscall_nr(regs), syscall_is_compat(regs), ret));
}

SEC("tp/raw_syscalls/sys_exit")
int exit__tp(struct trace_event_raw_sys_exit *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return NOT_PREEMPTED(handle_exit(regs, syscall_number(ctx->id), syscall_is_compat(regs), ctx->ret));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
