/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FSSYSCALL_BPF_H
#define __FSSYSCALL_BPF_H

#include "fscall.bpf.h"
#include "path.bpf.h"
#include "rw.bpf.h"

/* Operations of fsop.bpf.h by system calls: of regular files, fsyncs of directories too. */

#define S_IFMT 00170000
#define S_IFREG 0100000
#define S_IFDIR 0040000
#define O_APPEND 00002000
#define EBADF 9
#define FS_NAME_LEN 16
#define FS_TYPES_MAX 16

/* Only file systems of these types, by their names. */
const volatile __u32 targ_nr_types = 0;
const volatile __u64 targ_types[FS_TYPES_MAX][FS_NAME_LEN / 8] = {};

/* A thread is in one system call at a time. */
#define FRAME_OF_SYSCALL 1

/* A system call that returns. */
struct fs_syscall {
	struct pt_regs *regs;
	__s64 ret;
	__u64 ns;
	__s32 nr;
	bool compat;
};

static __always_inline bool type_wanted(struct inode *inode)
{
	__u64 name[FS_NAME_LEN / 8] = {};

	if (!targ_nr_types)
		return true;
	bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(inode, i_sb, s_type, name));
	for (int i = 0; i < FS_TYPES_MAX; i++) {
		if (i >= targ_nr_types)
			break;
		if (name[0] == targ_types[i][0] && name[1] == targ_types[i][1])
			return true;
	}
	return false;
}

static __always_inline bool file_wanted(struct file *file, enum fs_op op)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u32 format = BPF_CORE_READ(inode, i_mode) & S_IFMT;

	if (format != S_IFREG && (format != S_IFDIR || op != FS_OP_FSYNC))
		return false;
	return type_wanted(inode);
}

static __always_inline bool has_position(const struct fs_syscall *call)
{
	if (call->compat)
		return call->nr == RW_compat_read || call->nr == RW_compat_write ||
		       call->nr == RW_compat_readv || call->nr == RW_compat_writev;
	return call->nr == RW_read || call->nr == RW_write || call->nr == RW_readv ||
	       call->nr == RW_writev;
}

/* Of those that are told the offset only these are told it in one register and nothing else. */
static __always_inline bool has_offset(const struct fs_syscall *call, struct file *file)
{
	if (call->compat)
		return false;
	if (call->nr == RW_pread64 || call->nr == RW_preadv)
		return true;
	if (call->nr != RW_pwrite64 && call->nr != RW_pwritev)
		return false;
	return !(BPF_CORE_READ(file, f_flags) & O_APPEND);
}

/* The position has moved by what was read or written. */
static __always_inline __s64 offset_of(const struct fs_syscall *call, struct file *file)
{
	if (has_position(call))
		return BPF_CORE_READ(file, f_pos) - (call->ret > 0 ? call->ret : 0);
	if (has_offset(call, file))
		return syscall_arg(call->regs, 3, false);
	return -1;
}

/* What a call is of file systems. */
struct fs_syscall_kind {
	struct rw_call rw;
	enum fs_call call;
};

static __always_inline struct fs_syscall_kind fs_syscall_kind(__s32 nr, bool compat)
{
	return (struct fs_syscall_kind){ .rw = rw_call(nr, compat), .call = fs_call(nr, compat) };
}

/* The path of what a descriptor stands for, if it is wanted, else NULL. */
static __always_inline const struct path *path_wanted(__u32 fd, enum fs_op op)
{
	struct file *file = task_file(task_current(), fd);

	if (!file || !file_wanted(file, op))
		return NULL;
	return __builtin_preserve_access_index(&file->f_path);
}

/* The files are looked up before the call, so that none is taken for them that comes later. */
static __always_inline int syscall_begin(struct pt_regs *regs, __s32 nr, bool compat)
{
	const struct path *path = NULL, *to = NULL;
	struct fs_syscall_kind kind;
	struct call *c;

	if (nr < 0)
		return 0;
	kind = fs_syscall_kind(nr & ~__X32_SYSCALL_BIT, compat);
	if (kind.rw.from < 0 && kind.rw.to < 0 && kind.call != FS_CALL_OPEN && kind.call != FS_CALL_FSYNC)
		return 0;
	if (!task_current_wanted())
		return 0;
	if (kind.rw.from >= 0)
		path = path_wanted(syscall_arg(regs, kind.rw.from, compat), FS_OP_READ);
	if (kind.rw.to >= 0)
		to = path_wanted(syscall_arg(regs, kind.rw.to, compat), FS_OP_WRITE);
	if (kind.call == FS_CALL_FSYNC)
		path = path_wanted(syscall_arg(regs, 0, compat), FS_OP_FSYNC);
	if (!path && !to && kind.call != FS_CALL_OPEN)
		return 0;
	c = call_begin(FRAME_OF_SYSCALL);
	if (!c)
		return 0;
	c->path = path;
	c->to = to;
	c->begin_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void syscall_done(void *ctx, const struct fs_syscall *call, enum fs_op op,
					 const struct path *path, __u32 fd)
{
	struct fs_op_end end = { .ns = call->ns, .op = op, .path = path, .offset = -1 };
	struct file *file;

	if (!path || call->ret == -EBADF)
		return;
	file = task_file(task_current(), fd);
	if (path != __builtin_preserve_access_index(&file->f_path)) {
		counter_add(closed);
		return;
	}
	if (op != FS_OP_OPEN)
		end.ret = call->ret;
	if (op == FS_OP_READ || op == FS_OP_WRITE)
		end.offset = offset_of(call, file);
	fs_op_done(ctx, &end);
}

static __always_inline int syscall_end(void *ctx, struct pt_regs *regs, __s32 nr, bool compat,
				       long ret)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct fs_syscall call = { .regs = regs, .compat = compat };
	struct fs_syscall_kind kind;
	struct call begun;
	bool nested;

	if (nr < 0 || !call_end(FRAME_OF_SYSCALL, &begun, &nested))
		return 0;
	call.nr = nr & ~__X32_SYSCALL_BIT;
	kind = fs_syscall_kind(call.nr, compat);
	call.ret = compat ? (__s32)ret : ret;
	call.ns = now_ns - begun.begin_ns;
	if (kind.rw.from >= 0)
		syscall_done(ctx, &call, FS_OP_READ, begun.path, syscall_arg(regs, kind.rw.from, compat));
	if (kind.rw.to >= 0)
		syscall_done(ctx, &call, FS_OP_WRITE, begun.to, syscall_arg(regs, kind.rw.to, compat));
	if (kind.call == FS_CALL_FSYNC)
		syscall_done(ctx, &call, FS_OP_FSYNC, begun.path, syscall_arg(regs, 0, compat));
	if (kind.call == FS_CALL_OPEN && call.ret >= 0)
		syscall_done(ctx, &call, FS_OP_OPEN, path_wanted(call.ret, FS_OP_OPEN), call.ret);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(syscall__btf__enter, struct pt_regs *regs, long id)
{
	return NOT_PREEMPTED(syscall_begin(regs, syscall_number(id), syscall_is_compat_btf(regs)));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(syscall__btf__exit, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(syscall_end(ctx, regs, SYSCALL_NR(regs), syscall_is_compat_btf(regs), ret));
}

SEC("raw_tp/sys_enter")
int BPF_PROG(syscall__raw__enter, struct pt_regs *regs, long id)
{
	return NOT_PREEMPTED(syscall_begin(regs, syscall_number(id), syscall_is_compat(regs)));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(syscall__raw__exit, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(syscall_end(ctx, regs, syscall_nr(regs), syscall_is_compat(regs), ret));
}

#endif
