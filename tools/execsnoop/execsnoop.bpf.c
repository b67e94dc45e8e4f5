// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "syscall.bpf.h"
#include "path.bpf.h"

#define AT_FDCWD -100
/* Arguments are read in pieces that do not cross a page, as a page may be missing. */
#define PIECE 4096
/* Arguments and environment may have 6 MiB (_STK_LIM / 4 * 3), so this is all there can be. */
#define PIECES_MAX 1537
/* An argument takes one step, or one for each PIECE of it. */
#define FAIL_STEPS_MAX 1024
/* Room for the names: file and twice a path, and an interpreter. */
#define NAMES_SIZE (1 << 14)
#define INTERP_MAX 2048
/* A record that has so many bytes is sent before more are added. */
#define RECORD_FULL (NAMES_SIZE - PIECE)

const volatile bool want_exe = false;
const volatile bool want_cwd = false;
const volatile __u32 targ_ppid = 0;

/*
 * One exec. Its arguments may need several records: all have the same head, the
 * first one has the names, and args_more is set in all but the last one.
 */
struct event {
	struct task_info task;
	__u64 age_ns;
	__s32 ret;
	__u32 ppid;
	__u32 cpu;
	__s32 dfd; /* where a failed execveat began to look, else AT_FDCWD */
	__u32 file_len; /* lengths have the NUL, and are 0 for what could not be read */
	__u32 interp_len;
	__u32 data_len;
	__u32 args_len; /* of data_len, at its end */
	__u32 args_off; /* bytes of arguments in earlier records */
	__u8 args_more;
	__u8 args_truncated;
	__u8 pad[2];
	struct path_names exe;
	struct path_names cwd;
	char parent_comm[TASK_COMM_LEN];
	char data[NAMES_SIZE + PATH_BUF_SIZE]; /* file, interpreter, exe, cwd, arguments */
};

/* A failing exec may come between while another one is looked at, so each has its own. */
enum { SCRATCH_EXEC, SCRATCH_FAIL, SCRATCH_MAX };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_MAX);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

/* event_begin returns the head, filled from the current task, or NULL when it is not wanted. */
static __always_inline struct event *event_begin(__u32 which, __s32 ret)
{
	struct task_struct *task = task_current(), *parent;
	struct event *e;
	__u32 ppid;

	if (!task_current_wanted())
		return NULL;
	parent = BPF_CORE_READ(task, real_parent);
	ppid = BPF_CORE_READ(parent, tgid);
	if (targ_ppid && ppid != targ_ppid)
		return NULL;
	e = bpf_map_lookup_elem(&scratch, &which);
	if (!e)
		return NULL;
	__builtin_memset(e, 0, offsetof(struct event, data));
	task_info_current(&e->task);
	e->age_ns = e->task.time_ns - BPF_CORE_READ(task, group_leader, start_boottime);
	e->ret = ret;
	e->ppid = ppid;
	e->cpu = bpf_get_smp_processor_id();
	e->dfd = AT_FDCWD;
	BPF_CORE_READ_STR_INTO(&e->parent_comm, parent, comm);
	return e;
}

static __always_inline char *event_room(struct event *e)
{
	return e->data + (e->data_len & (NAMES_SIZE - 1));
}

/* add_name takes what a read of a string returned. */
static __always_inline __u32 add_name(struct event *e, long len)
{
	if (len <= 0)
		return 0;
	e->data_len += len;
	return len;
}

static __noinline int add_path(struct event *e, struct path_names *names, const struct path *start)
{
	struct task_struct *task = task_current();
	struct fs_struct *fs = BPF_CORE_READ(task, fs);

	path_names(names, event_room(e), start, __builtin_preserve_access_index(&fs->root));
	e->data_len += names->len;
	return 0;
}

static __always_inline void add_paths(struct event *e)
{
	struct task_struct *task = task_current();
	struct file *exe;
	struct fs_struct *fs;

	if (want_exe) {
		exe = BPF_CORE_READ(task, mm, exe_file);
		add_path(e, &e->exe, __builtin_preserve_access_index(&exe->f_path));
	}
	if (want_cwd) {
		fs = BPF_CORE_READ(task, fs);
		add_path(e, &e->cwd, __builtin_preserve_access_index(&fs->pwd));
	}
}

static __noinline long record_send(void *ctx, struct event *e)
{
	__u32 len = e->data_len;

	if (len > sizeof(e->data))
		return -1;
	return event_output(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
}

/*
 * Sends what there is, to make room. When it cannot be sent, the last record says that
 * something is missing: it has no data, so it may still fit.
 */
static __always_inline bool args_flush(void *ctx, struct event *e)
{
	bool sent;

	e->args_more = 1;
	sent = !record_send(ctx, e);
	if (sent)
		e->args_off += e->args_len;
	else
		e->exe.truncated = e->cwd.truncated = 1;
	e->args_more = 0;
	e->args_len = 0;
	e->data_len = 0;
	e->file_len = 0;
	e->interp_len = 0;
	e->exe.len = 0;
	e->cwd.len = 0;
	return sent;
}

/* Room for one more piece, or NULL. */
static __always_inline char *args_room(void *ctx, struct event *e)
{
	if (e->data_len >= RECORD_FULL && !args_flush(ctx, e))
		return NULL;
	return event_room(e);
}

static __always_inline void args_added(struct event *e, __u32 len)
{
	e->data_len += len;
	e->args_len += len;
}

/* The new image's own arguments: all of it was just written, and is one stretch. */
static __always_inline bool read_args(void *ctx, struct event *e)
{
	struct task_struct *task = task_current();
	__u64 addr = BPF_CORE_READ(task, mm, arg_start);
	__u64 end = BPF_CORE_READ(task, mm, arg_end);

	for (int i = 0; i < PIECES_MAX; i++) {
		__u64 len = PIECE - (addr & (PIECE - 1));
		char *room;

		if (addr >= end)
			return true;
		if (len > end - addr)
			len = end - addr;
		room = args_room(ctx, e);
		if (!room || len > PIECE || bpf_probe_read_user(room, len, (void *)addr))
			return false;
		args_added(e, len);
		addr += len;
	}
	return addr >= end;
}

/* read_pointer reads argv[i] of a caller with long or short pointers. */
static __always_inline long read_pointer(__u64 *ptr, __u64 argv, __u32 i, bool is_short)
{
	*ptr = 0;
	return bpf_probe_read_user(ptr, is_short ? 4 : 8, (void *)(argv + i * (is_short ? 4 : 8)));
}

/* The arguments that a failed exec was given, still where the caller has them. */
static __always_inline bool read_argv(void *ctx, struct event *e, __u64 argv, bool is_short)
{
	__u64 arg = 0;
	__u32 next = 0;

	if (!argv)
		return true;
	for (int i = 0; i < FAIL_STEPS_MAX; i++) {
		char *room;
		long len;

		if (!arg && read_pointer(&arg, argv, next++, is_short))
			return false;
		if (!arg)
			return true;
		room = args_room(ctx, e);
		if (!room)
			return false;
		len = bpf_probe_read_user_str(room, PIECE, (void *)arg);
		if (len <= 0)
			return false;
		/* A full piece ends with a NUL that need not be the argument's own. */
		arg = len == PIECE ? arg + PIECE - 1 : 0;
		args_added(e, len == PIECE ? PIECE - 1 : len);
	}
	return false;
}

static __always_inline int event_end(void *ctx, struct event *e, bool complete)
{
	e->args_truncated = !complete;
	if (record_send(ctx, e))
		lost_add(buffer_full);
	return 0;
}

/* Runs in the new image, as its first and only thread, whatever thread and call it came by. */
static __always_inline int handle_exec(void *ctx, struct linux_binprm *bprm)
{
	const char *file = BPF_CORE_READ(bprm, filename);
	const char *interp = BPF_CORE_READ(bprm, interp);
	struct event *e = event_begin(SCRATCH_EXEC, 0);

	if (!e)
		return 0;
	e->file_len = add_name(e, bpf_probe_read_kernel_str(event_room(e), PATH_MAX, file));
	if (interp != file)
		e->interp_len = add_name(
			e, bpf_probe_read_kernel_str(event_room(e), INTERP_MAX, interp));
	add_paths(e);
	return event_end(ctx, e, read_args(ctx, e));
}

struct exec_call {
	__s32 dfd;
	bool is_short;
	__u64 file;
	__u64 argv;
};

static __always_inline int handle_fail(void *ctx, const struct exec_call *call, long ret)
{
	struct event *e = event_begin(SCRATCH_FAIL, ret);
	long len;

	if (!e)
		return 0;
	e->dfd = call->dfd;
	len = bpf_probe_read_user_str(event_room(e), PATH_MAX, (void *)call->file);
	e->file_len = add_name(e, len);
	add_paths(e);
	return event_end(ctx, e, read_argv(ctx, e, call->argv, call->is_short));
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret)
{
	bool is_x32 = nr == (__X32_SYSCALL_BIT | NR_x32_execve) ||
		      nr == (__X32_SYSCALL_BIT | NR_x32_execveat);
	struct exec_call call = { .dfd = AT_FDCWD };
	bool compat;
	int first;

	if (!is_x32 && nr != NR_execve && nr != NR_execveat && nr != NR_compat_execve &&
	    nr != NR_compat_execveat)
		return 0;
	compat = syscall_is_compat(regs);
	ret = (__s32)ret;
	if (ret >= 0)
		return 0;
	if (nr == (compat ? NR_compat_execve : NR_execve) || nr == (__X32_SYSCALL_BIT | NR_x32_execve)) {
		first = 0;
	} else if (nr == (compat ? NR_compat_execveat : NR_execveat) || is_x32) {
		first = 1;
		call.dfd = syscall_arg(regs, 0, compat);
	} else {
		return 0;
	}
	call.file = syscall_arg(regs, first, compat);
	call.argv = syscall_arg(regs, first + 1, compat);
	call.is_short = compat || is_x32;
	return handle_fail(ctx, &call, ret);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec__btf, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return handle_exec(ctx, bprm);
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(exec__raw, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return handle_exec(ctx, bprm);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(fail__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(fail__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
