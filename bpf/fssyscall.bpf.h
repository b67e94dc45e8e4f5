/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FSSYSCALL_BPF_H
#define __FSSYSCALL_BPF_H

#include "fscall.bpf.h"
#include "inode.bpf.h"
#include "path.bpf.h"
#include "rw.bpf.h"

/* System calls as operations of fsop.bpf.h: on regular files, and fsync on directories too. */

#define O_APPEND 00002000
#define EBADF 9
#define FS_NAME_LEN 16
#define FS_TYPES_MAX 16

/* Only file systems of these types, by name; all if targ_nr_types is 0. */
const volatile __u32 targ_nr_types = 0;
const volatile __u64 targ_types[FS_TYPES_MAX][FS_NAME_LEN / 8] = {};

/* Include files that are not regular. */
const volatile bool targ_all_files = false;

/* The frame of all system calls, because a thread is in one system call at a time. */
#define SYSCALL_FRAME 1

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
	__u32 type = inode_type(inode);

	if (!targ_all_files && type != S_IFREG && (type != S_IFDIR || op != FS_OP_FSYNC))
		return false;
	return type_wanted(inode);
}

/* Returns the path of the file that a descriptor refers to if it is wanted, otherwise NULL. */
static __always_inline const struct path *path_wanted(__u32 fd, enum fs_op op)
{
	struct file *file = fs_op_wanted(op) ? task_file(task_current(), fd) : NULL;

	if (!file || !file_wanted(file, op))
		return NULL;
	return __builtin_preserve_access_index(&file->f_path);
}

static __always_inline bool rw_has_position(__s32 nr, bool compat)
{
	if (compat)
		return nr == RW_compat_read || nr == RW_compat_write || nr == RW_compat_readv ||
		       nr == RW_compat_writev;
	return nr == RW_read || nr == RW_write || nr == RW_readv || nr == RW_writev;
}

/*
 * Reports whether the fourth argument is a file offset. Other calls have it in two registers or in
 * memory, or have a value for the file position.
 */
static __always_inline bool rw_has_offset(__s32 nr, bool compat)
{
	if (compat)
		return false;
	return nr == RW_pread64 || nr == RW_preadv || nr == RW_pwrite64 || nr == RW_pwritev;
}

/* Reports whether the call is a read or write that is wanted. */
static __always_inline bool fill_rw(struct call *c, struct pt_regs *regs, __s32 nr)
{
	struct rw_call rw = rw_call(nr, c->compat);

	if (rw.from < 0 && rw.to < 0)
		return false;
	if (rw.from >= 0) {
		c->fd = syscall_arg(regs, rw.from, c->compat);
		c->path = path_wanted(c->fd, FS_OP_READ);
	}
	if (rw.to >= 0) {
		c->to_fd = syscall_arg(regs, rw.to, c->compat);
		c->to = path_wanted(c->to_fd, FS_OP_WRITE);
	}
	c->op = FS_OP_READ;
	c->has_position = rw_has_position(nr, c->compat);
	if (rw_has_offset(nr, c->compat))
		c->offset = syscall_arg(regs, 3, false);
	return c->path || c->to;
}

/* The same for other calls. The file of an open is known when it returns. */
static __always_inline bool fill_other(struct call *c, struct pt_regs *regs, __s32 nr)
{
	switch (fs_call(nr, c->compat)) {
	case FS_CALL_OPEN:
		c->op = FS_OP_OPEN;
		return fs_op_wanted(FS_OP_OPEN);
	case FS_CALL_FSYNC:
		c->op = FS_OP_FSYNC;
		c->fd = syscall_arg(regs, 0, c->compat);
		c->path = path_wanted(c->fd, FS_OP_FSYNC);
		return c->path;
	default:
		return false;
	}
}

/*
 * Files are looked up before the call, because the descriptor can refer to another file after it.
 */
static __always_inline int syscall_begin(struct pt_regs *regs, __s32 nr, bool compat)
{
	struct call call = { .offset = -1, .compat = compat }, *c;

	if (nr < 0 || !task_current_wanted())
		return 0;
	nr &= ~__X32_SYSCALL_BIT;
	if (!fill_rw(&call, regs, nr) && !fill_other(&call, regs, nr))
		return 0;
	c = call_begin(SYSCALL_FRAME);
	if (!c)
		return 0;
	*c = call;
	c->begin_ns = bpf_ktime_get_ns();
	return 0;
}

/*
 * The file offset at which the operation began: the file position has moved by the bytes
 * transferred. The offset of an append is unknown (-1).
 */
static __always_inline __s64 start_offset(const struct call *c, struct file *file, enum fs_op op, __s64 ret)
{
	if (c->has_position)
		return BPF_CORE_READ(file, f_pos) - (ret > 0 ? ret : 0);
	if (op == FS_OP_WRITE && BPF_CORE_READ(file, f_flags) & O_APPEND)
		return -1;
	return c->offset;
}

static __always_inline void syscall_done(void *ctx, const struct call *c, struct fs_op_end *end, __u32 fd)
{
	struct file *file;
	__s64 ret = end->ret;

	if (!end->path || ret == -EBADF)
		return;
	file = task_file(task_current(), fd);
	if (end->path != __builtin_preserve_access_index(&file->f_path)) {
		counter_add(closed);
		return;
	}
	end->offset = -1;
	if (end->op == FS_OP_READ || end->op == FS_OP_WRITE)
		end->offset = start_offset(c, file, end->op, ret);
	else if (end->op == FS_OP_OPEN)
		end->ret = 0;
	fs_op_done(ctx, end);
}

static __always_inline int syscall_end(void *ctx, __s64 ret)
{
	struct fs_op_end end = { .ns = bpf_ktime_get_ns() };
	struct call call;
	bool nested;

	if (!call_end(SYSCALL_FRAME, &call, &nested))
		return 0;
	if (call.compat)
		ret = (__s32)ret;
	if (call.op == FS_OP_OPEN) {
		if (ret < 0)
			return 0;
		call.fd = ret;
		call.path = path_wanted(ret, FS_OP_OPEN);
	}
	end.ns -= call.begin_ns;
	end.ret = ret;
	end.op = call.op;
	end.path = call.path;
	syscall_done(ctx, &call, &end, call.fd);
	end.op = FS_OP_WRITE;
	end.path = call.to;
	syscall_done(ctx, &call, &end, call.to_fd);
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
	return NOT_PREEMPTED(syscall_end(ctx, ret));
}

SEC("raw_tp/sys_enter")
int BPF_PROG(syscall__raw__enter, struct pt_regs *regs, long id)
{
	return NOT_PREEMPTED(syscall_begin(regs, syscall_number(id), syscall_is_compat(regs)));
}

SEC("tp/raw_syscalls/sys_enter")
int syscall__tp__enter(struct trace_event_raw_sys_enter *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return NOT_PREEMPTED(syscall_begin(regs, syscall_number(ctx->id), syscall_is_compat(regs)));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(syscall__raw__exit, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(syscall_end(ctx, ret));
}

SEC("tp/raw_syscalls/sys_exit")
int syscall__tp__exit(struct trace_event_raw_sys_exit *ctx)
{
	return NOT_PREEMPTED(syscall_end(ctx, ctx->ret));
}

#endif
