// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "calls.bpf.h"
#include "compat.bpf.h"
#include "path.bpf.h"
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

#define count(member)                            \
	do {                                     \
		if (task_current_wanted())       \
			totals_add(member, 1);   \
	} while (0)

static __always_inline void count_open(struct file *file)
{
	if (!task_current_wanted())
		return;
	totals_add(opens, 1);
	if (file && BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
		totals_add(creates, 1);
}

/* A program of a function that is called, by a trampoline or a probe. */
#define FUNCTION(function, part, member)                \
	SEC("fentry/" #function)                        \
	int vfs__fentry__##part(void *ctx)              \
	{                                               \
		count(member);                          \
		return 0;                               \
	}                                               \
	SEC("kprobe/" #function)                        \
	int vfs__kprobe__##part(void *ctx)              \
	{                                               \
		count(member);                          \
		return 0;                               \
	}

FUNCTION(vfs_read, read, reads)
FUNCTION(vfs_write, write, writes)
FUNCTION(vfs_create, create, creates)
FUNCTION(vfs_unlink, unlink, unlinks)
FUNCTION(vfs_mkdir, mkdir, mkdirs)
FUNCTION(vfs_rmdir, rmdir, rmdirs)

SEC("fentry/vfs_open")
int BPF_PROG(vfs__fentry__open, const struct path *path, struct file *file)
{
	count_open(file);
	return 0;
}

SEC("kprobe/vfs_open")
int BPF_KPROBE(vfs__kprobe__open, const struct path *path, struct file *file)
{
	count_open(file);
	return 0;
}

/* The calls that come to these functions: those that were given what they need. */
static __always_inline int handle_exit(struct pt_regs *regs, __s32 nr, long ret)
{
	bool compat = syscall_is_compat(regs);
	enum call call;

	if (compat)
		ret = (__s32)ret;
	if (nr < 0)
		return 0;
	nr &= ~__X32_SYSCALL_BIT;
	call = compat ? call_of_compat(nr) : call_of_native(nr);
	if (call == CALL_UNLINKAT)
		call = syscall_arg(regs, 2, compat) & AT_REMOVEDIR ? CALL_RMDIR : CALL_UNLINK;
	if (call == CALL_READ && ret != -EBADF)
		count(reads);
	else if (call == CALL_WRITE && ret != -EBADF)
		count(writes);
	if (ret < 0)
		return 0;
	if (call == CALL_OPEN)
		count_open(task_file(task_current(), ret));
	else if (call == CALL_UNLINK)
		count(unlinks);
	else if (call == CALL_MKDIR)
		count(mkdirs);
	else if (call == CALL_RMDIR)
		count(rmdirs);
	return 0;
}

/*
 * Compilers inline what fsync(2) and fdatasync(2) come to, for one of them or both: these
 * are counted as the system calls that they are, whatever way the others take.
 */
static __always_inline int handle_fsync(struct pt_regs *regs, __s32 nr, long ret)
{
	bool compat = syscall_is_compat(regs);

	if (nr < 0)
		return 0;
	nr &= ~__X32_SYSCALL_BIT;
	if ((compat ? call_of_compat(nr) : call_of_native(nr)) == CALL_FSYNC &&
	    (__s32)ret != -EBADF)
		count(fsyncs);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(fsync__btf, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_fsync(regs, SYSCALL_NR(regs), ret));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(fsync__raw, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_fsync(regs, syscall_nr(regs), ret));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(vfs__syscalls, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(regs, SYSCALL_NR(regs), ret));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(vfs__sysraw, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(regs, syscall_nr(regs), ret));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
