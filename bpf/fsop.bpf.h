/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FSOP_BPF_H
#define __FSOP_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

/*
 * Operations on files and their durations, observed in functions of the file system or, if these
 * cannot be traced, in system calls (fssyscall.bpf.h). The tool defines fs_op_done(), which is
 * called for each operation.
 */

#define EIOCBQUEUED 529

/* Only these operations: bits 1 << enum fs_op; 0 for all. */
const volatile __u32 targ_ops = 0;

/* value.FileOp in Go. The target IDs of the functions of an operation start at enum fs_op << 8. */
enum fs_op {
	FS_OP_READ,
	FS_OP_WRITE,
	FS_OP_OPEN,
	FS_OP_FSYNC,
	FS_OP_GETATTR,
};

/* A completed operation. */
struct fs_op_end {
	__u64 ns; /* duration, CLOCK_MONOTONIC */
	const struct path *path; /* of the file */
	__s64 ret; /* bytes read or written, 0 for other operations, or -errno */
	__s64 offset; /* file offset at which a read or write began, -1 if unknown */
	enum fs_op op;
};

static __always_inline void fs_op_done(void *ctx, const struct fs_op_end *end);

static __always_inline bool fs_op_wanted(enum fs_op op)
{
	return !targ_ops || targ_ops & 1 << op;
}

/*
 * The inode of the file itself. Until 6.7 (def3ae83da02), the path of a file that overlayfs opens
 * on the underlying file system is that of the overlayfs file.
 */
static __always_inline struct inode *fs_op_inode(const struct fs_op_end *end)
{
	const struct path *path = end->path;
	struct file *file = (void *)path - bpf_core_field_offset(struct file, f_path);

	if (end->op == FS_OP_GETATTR)
		return BPF_CORE_READ(path, dentry, d_inode);
	return BPF_CORE_READ(file, f_inode);
}

struct counters {
	__u64 queued; /* reads and writes that were queued: their duration is unknown */
	__u64 closed; /* system calls whose descriptor was closed before they returned */
};

#include "counters.bpf.h"

/* An operation in progress. */
struct call {
	__u64 begin_ns;
	const struct path *path;
	const struct path *to; /* file that a system call writes */
	struct kiocb *iocb; /* of a function that reads or writes */
	__s64 offset;
	enum fs_op op;
	__u32 fd; /* of path, in a system call */
	__u32 to_fd;
	bool has_position; /* reads or writes at the file position */
	bool compat;
	__u8 pad[2];
};

#include "call.bpf.h"

static __always_inline void call_fill_rw(struct call *c, struct kiocb *iocb)
{
	struct file *file = BPF_CORE_READ(iocb, ki_filp);

	c->path = __builtin_preserve_access_index(&file->f_path);
	c->iocb = iocb;
	c->offset = BPF_CORE_READ(iocb, ki_pos);
}

/* a and b are the first two arguments of the function. */
static __always_inline int fs_op_begin(__u64 frame, __u32 op, __u64 a, __u64 b)
{
	struct file *file = (void *)(op == FS_OP_OPEN ? b : a);
	struct call *c;

	if (!task_current_wanted())
		return 0;
	c = call_begin(frame);
	if (!c)
		return 0;
	*c = (struct call){ .op = op, .offset = -1 };
	if (op == FS_OP_READ || op == FS_OP_WRITE)
		call_fill_rw(c, (void *)a);
	else if (op == FS_OP_GETATTR)
		c->path = (void *)(FS_CALLS_HAVE_IDMAP ? b : a);
	else
		c->path = __builtin_preserve_access_index(&file->f_path);
	c->begin_ns = bpf_ktime_get_ns();
	return 0;
}

/*
 * The offset at which a read or write began. For an append it is known only at the end. Without a
 * successful result the kiocb is not read, because it may be freed after it was queued.
 */
static __always_inline __s64 offset_at_end(const struct call *c, __s64 ret)
{
	struct kiocb *iocb = c->iocb;

	if (ret <= 0)
		return c->offset;
	return BPF_CORE_READ(iocb, ki_pos) - ret;
}

static __always_inline int fs_op_end(void *ctx, __u64 frame, __s64 ret)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct fs_op_end end = {};
	struct call call;
	bool nested;

	if (!call_end(frame, &call, &nested))
		return 0;
	end.op = call.op;
	end.ns = now_ns - call.begin_ns;
	end.path = call.path;
	end.offset = -1;
	end.ret = (__s32)ret;
	if (call.op == FS_OP_READ || call.op == FS_OP_WRITE) {
		if (ret == -EIOCBQUEUED) {
			counter_add(queued);
			return 0;
		}
		end.ret = ret;
		end.offset = offset_at_end(&call, ret);
	}
	fs_op_done(ctx, &end);
	return 0;
}

/*
 * In assembly, because the compiler would select the address first and then load from it, which the
 * verifier of 5.10 rejects.
 */
#define CTX_WORD(ctx, n)                                                                  \
	({                                                                                \
		__u64 __word;                                                             \
		asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(__word) : "r"(ctx), "i"((n) * 8)); \
		__word;                                                                   \
	})

/* The return value follows the arguments. */
static __always_inline __s64 fexit_ret(__u64 *ctx, __u32 op)
{
	if (op == FS_OP_FSYNC)
		return CTX_WORD(ctx, 4);
	if (op != FS_OP_GETATTR)
		return CTX_WORD(ctx, 2);
	if (FS_CALLS_HAVE_IDMAP)
		return CTX_WORD(ctx, 5);
	return CTX_WORD(ctx, 4);
}

SEC("fentry")
int BPF_PROG(function__fentry__begin)
{
	return fs_op_begin((__u64)ctx, target_id(ctx) >> 8, ctx[0], ctx[1]);
}

SEC("fexit")
int BPF_PROG(function__fentry__end)
{
	return fs_op_end(ctx, (__u64)ctx, fexit_ret(ctx, target_id(ctx) >> 8));
}

SEC("kprobe")
int function__kprobe__begin(struct pt_regs *ctx)
{
	return fs_op_begin(frame_at_begin(ctx), target_id(ctx) >> 8, PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx));
}

SEC("kretprobe")
int function__kprobe__end(struct pt_regs *ctx)
{
	return fs_op_end(ctx, frame_at_end(ctx), PT_REGS_RC(ctx));
}

#include "fssyscall.bpf.h"

#endif
