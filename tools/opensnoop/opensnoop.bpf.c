// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "command.bpf.h"
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"
#include "syscall.bpf.h"
#include "given.bpf.h"
#include "stackwalk.bpf.h"

#define O_ACCMODE 3
#define O_CREAT 00000100
#define O_WRONLY 00000001
#define O_TRUNC 00001000
#define TARG_PATH_MAX 256

const volatile bool targ_failed = false;
const volatile bool want_full_path = false;
const volatile bool want_user_stack = false;
/* Any of these flags, or one of these access modes (bit 1 << mode). */
const volatile __u32 targ_flags = 0;
const volatile __u32 targ_access = 0;
/* Text that comm must contain. */
const volatile char targ_name[TASK_COMM_LEN] = {};
const volatile __u32 targ_name_len = 0;
/*
 * Prefix or suffix of the path as given by the task. A prefix with its NUL byte is the whole path.
 */
const volatile char targ_path[TARG_PATH_MAX] = {};
const volatile __u32 targ_path_len = 0;
const volatile bool targ_path_is_end = false;

struct event {
	struct task_info task;
	__u64 flags; /* as in open(2) */
	__s32 ret; /* the new descriptor, or -errno */
	__s32 dfd;
	__u32 mode;
	__u32 path_len; /* including the NUL byte; 0 if it could not be read */
	struct path_names base; /* the directory that the path is relative to */
	__u32 stack_len;
	char data[PATH_MAX + PATH_BUF_SIZE + STACK_MAX_BYTES]; /* path, names of base, stack */
};

/* struct open_how is UAPI and can be missing in the kernel's BTF, so it is defined here. */
struct open_args {
	__u64 flags;
	__u64 mode;
};

/* One open as requested by the task. */
struct open_call {
	const char *path;
	__u64 flags;
	__u32 mode;
	__s32 dfd;
	bool in_kernel; /* path is in kernel memory */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* one for system calls, one for io_uring */
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

static __always_inline bool flags_wanted(__u64 flags)
{
	if (!targ_flags && !targ_access)
		return true;
	return (flags & targ_flags) || (targ_access & (1 << (flags & O_ACCMODE)));
}

static __always_inline bool name_wanted(const char *comm)
{
	if (!targ_name_len)
		return true;
	for (int from = 0; from < TASK_COMM_LEN; from++) {
		int i;

		for (i = 0; i < TASK_COMM_LEN; i++) {
			if (i >= targ_name_len)
				return true;
			if (from + i >= TASK_COMM_LEN || comm[from + i] != targ_name[i])
				break;
		}
	}
	return false;
}

static __always_inline bool path_wanted(const char *path, __u32 len)
{
	__u32 from = 0;

	if (!targ_path_len)
		return true;
	if (len < targ_path_len)
		return false;
	if (targ_path_is_end)
		from = len - targ_path_len;
	for (int i = 0; i < TARG_PATH_MAX; i++) {
		if (i >= targ_path_len)
			break;
		if (path[(from + i) & (PATH_MAX - 1)] != targ_path[i])
			return false;
	}
	return true;
}

static __always_inline long read_path(char *buf, const struct open_call *call)
{
	if (call->in_kernel)
		return bpf_probe_read_kernel_str(buf, PATH_MAX, call->path);
	return read_user_str(buf, PATH_MAX, call->path);
}

/* The user stack of the caller, which worker threads of a ring do not have. */
static __always_inline void read_stack(void *ctx, struct event *e)
{
	const __u32 pf_io_worker = 0x10;
	__u32 at = e->path_len + e->base.len;

	barrier_var(at);
	if (at > PATH_MAX + PATH_BUF_SIZE || BPF_CORE_READ(task_current(), flags) & pf_io_worker)
		return;
	e->stack_len = user_stack_read(ctx, e->data + at, 0);
}

/* Fills the event and reports whether it is wanted, as far as known without the result. */
static __always_inline bool fill_event(void *ctx, struct event *e, const struct open_call *call)
{
	long len;

	if (!flags_wanted(call->flags) || !task_current_wanted())
		return false;
	__builtin_memset(e, 0, offsetof(struct event, data));
	task_info_current(&e->task);
	if (!name_wanted(e->task.comm))
		return false;
	len = read_path(e->data, call);
	if (len < 0) {
		len = 0;
		e->data[0] = 0;
	}
	if (!path_wanted(e->data, len))
		return false;
	e->dfd = call->dfd;
	e->flags = call->flags;
	e->mode = call->mode;
	e->path_len = len;
	len &= 2 * PATH_MAX - 1;
	if (want_full_path && len <= PATH_MAX)
		given_base(&e->base, e->data + len, e->data[0], e->dfd);
	if (want_user_stack)
		read_stack(ctx, e);
	return true;
}

static __always_inline void send_event(void *ctx, struct event *e, long ret)
{
	__u32 path_len = e->path_len, base_len = e->base.len, stack_len = e->stack_len;
	__u32 size = offsetof(struct event, data);

	if (path_len > PATH_MAX || base_len > PATH_BUF_SIZE || stack_len > STACK_MAX_BYTES)
		return;
	e->ret = ret;
	event_send(ctx, e, size + path_len + base_len + stack_len, e->task.time_ns);
}

static __always_inline int handle_open(void *ctx, const struct open_call *call, long ret)
{
	__u32 zero = 0;
	struct event *e;

	if (targ_failed && ret >= 0)
		return 0;
	preempt_off();
	e = bpf_map_lookup_elem(&scratch, &zero);
	if (e && fill_event(ctx, e, call))
		send_event(ctx, e, ret);
	preempt_on();
	return 0;
}

static __always_inline int handle_how(void *ctx, struct open_call *req, struct pt_regs *regs,
				      bool compat, long ret)
{
	struct open_args how = {};

	bpf_probe_read_user(&how, sizeof(how), (void *)syscall_arg(regs, 2, compat));
	req->flags = how.flags;
	req->mode = how.mode;
	return handle_open(ctx, req, ret);
}

/* open(path, flags, mode) and openat(dfd, path, flags, mode): first is the index of the path. */
static __always_inline int handle_call(void *ctx, struct pt_regs *regs, int first, bool compat,
				       long ret)
{
	struct open_call req = {
		.dfd = first ? (__s32)syscall_arg(regs, 0, compat) : AT_FDCWD,
		.path = (const char *)syscall_arg(regs, first, compat),
		.flags = (__u32)syscall_arg(regs, first + 1, compat),
		.mode = syscall_arg(regs, first + 2, compat),
	};

	return handle_open(ctx, &req, ret);
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	struct open_call req = {};
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (nr != NR_open && nr != NR_openat && nr != NR_openat2 && nr != NR_creat &&
	    nr != NR_compat_open && nr != NR_compat_openat && nr != NR_compat_creat)
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (compat)
		ret = (__s32)ret;
	if (nr == (compat ? NR_compat_open : NR_open))
		return handle_call(ctx, regs, 0, compat, ret);
	if (nr == (compat ? NR_compat_openat : NR_openat))
		return handle_call(ctx, regs, 1, compat, ret);
	if (nr == (compat ? NR_compat_openat2 : NR_openat2)) {
		req.dfd = syscall_arg(regs, 0, compat);
		req.path = (const char *)syscall_arg(regs, 1, compat);
		return handle_how(ctx, &req, regs, compat, ret);
	}
	if (nr == (compat ? NR_compat_creat : NR_creat)) {
		req.dfd = AT_FDCWD;
		req.path = (const char *)syscall_arg(regs, 0, compat);
		req.mode = syscall_arg(regs, 1, compat);
		req.flags = O_CREAT | O_WRONLY | O_TRUNC;
		return handle_open(ctx, &req, ret);
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(open__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(open__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int open__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

/*
 * io_uring copies the path when the request is submitted, and has the result when it is completed,
 * possibly by another thread. io_uring_submit_req has this name from 6.4 on (2ad57931db64), and
 * requests are commands from 6.0 on (f2ccb5aed7bc).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct io_kiocb *);
	__type(value, struct event);
} uring SEC(".maps");

/* The copy of the path, which is in a struct delayed_filename from 7.0 on. */
struct io_open___name {
	struct filename *filename;
};

static __always_inline struct filename *uring_filename(void *open)
{
	struct filename *name = NULL;
	__u32 offset;

	if (bpf_core_field_exists(struct io_open___name, filename))
		offset = bpf_core_field_offset(struct io_open___name, filename);
	else
		offset = bpf_core_field_offset(struct io_open, filename);
	bpf_probe_read_kernel(&name, sizeof(name), open + offset);
	return name;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring__btf__submit, struct io_kiocb *req)
{
	void *open = (void *)req + bpf_core_field_offset(struct io_kiocb, cmd);
	__u8 opcode = BPF_CORE_READ(req, opcode);
	struct open_call call = { .in_kernel = true };
	__u32 one = 1;
	struct event *e;

	if (opcode != IORING_OP_OPENAT && opcode != IORING_OP_OPENAT2)
		return 0;
	call.path = BPF_CORE_READ(uring_filename(open), name);
	call.dfd = BPF_CORE_READ((struct io_open *)open, dfd);
	call.flags = BPF_CORE_READ((struct io_open *)open, how.flags);
	call.mode = BPF_CORE_READ((struct io_open *)open, how.mode);
	preempt_off();
	e = bpf_map_lookup_elem(&scratch, &one);
	if (e && fill_event(ctx, e, &call) && bpf_map_update_elem(&uring, &req, e, BPF_ANY))
		lost_add(map_full);
	preempt_on();
	return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring__btf__complete, struct io_ring_ctx *ring, struct io_kiocb *req)
{
	struct event *e = bpf_map_lookup_elem(&uring, &req);
	__s32 ret;

	if (!e)
		return 0;
	ret = BPF_CORE_READ(req, cqe.res);
	e->task.time_ns = bpf_ktime_get_boot_ns();
	if (!targ_failed || ret < 0)
		send_event(ctx, e, ret);
	bpf_map_delete_elem(&uring, &req);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
