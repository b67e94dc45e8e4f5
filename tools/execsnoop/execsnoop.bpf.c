// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "compat.bpf.h"
#include "syscall.bpf.h"
#include "path.bpf.h"

#define AT_FDCWD -100
#define PAGE_BYTES 4096
/* Arguments are read in pieces of pages, or of one where not all of them are resident. */
#define PIECE (3 * PAGE_BYTES)
/* 2 MiB: what a stack of the usual 8 MiB has room for. The verifier follows each turn. */
#define PIECES_MAX ((2 << 20) / PIECE + 2)
/* An argument of a failed call takes one turn, or one for each page that it has. */
#define FAIL_TURNS_MAX 256
/* Room for the names: file and twice a path, and an interpreter. */
#define NAMES_SIZE (1 << 14)
#define INTERP_MAX 2048

const volatile bool want_exe = false;
const volatile bool want_cwd = false;
const volatile __u32 targ_ppid = 0;

/* Lengths have the NUL, and are 0 for what could not be read. */
struct exec_names {
	__u32 file_len;
	__u32 interp_len;
	struct path_names exe;
	struct path_names cwd;
};

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
	__u32 data_len;
	__u32 args_len; /* of data_len, at its end */
	__u32 args_off; /* bytes of arguments in earlier records */
	__u8 args_more;
	__u8 args_truncated;
	__u8 pad[2];
	struct exec_names names;
	char parent_comm[TASK_COMM_LEN];
	char data[NAMES_SIZE + PIECE]; /* the names in their order, and arguments */
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
		add_path(e, &e->names.exe, __builtin_preserve_access_index(&exe->f_path));
	}
	if (want_cwd) {
		fs = BPF_CORE_READ(task, fs);
		add_path(e, &e->names.cwd, __builtin_preserve_access_index(&fs->pwd));
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
	e->args_more = 0;
	__builtin_memset(&e->names, 0, sizeof(e->names));
	if (sent)
		e->args_off += e->args_len;
	else
		e->names.exe.truncated = e->names.cwd.truncated = 1;
	e->args_len = 0;
	e->data_len = 0;
	return sent;
}

/* Room for one more piece, or NULL. */
static __always_inline char *args_room(void *ctx, struct event *e)
{
	if (e->data_len >= NAMES_SIZE && !args_flush(ctx, e))
		return NULL;
	return event_room(e);
}

static __always_inline void args_added(struct event *e, __u32 len)
{
	e->data_len += len;
	e->args_len += len;
}

/*
 * read_piece reads to the end of the piece, or of its first page, and returns the length
 * or 0. The barriers have the compiler check the very register that is used: 5.10 does
 * not know that two are equal.
 */
static __always_inline __u64 read_piece(char *room, __u64 addr, __u64 left)
{
	__u64 page = PAGE_BYTES - (addr & (PAGE_BYTES - 1));
	__u64 len = page + PIECE - PAGE_BYTES;

	if (len > left)
		len = left;
	barrier_var(len);
	if (len > PIECE)
		return 0;
	if (!bpf_probe_read_user(room, len, (void *)addr))
		return len;
	barrier_var(page);
	if (len <= page || page > PAGE_BYTES || bpf_probe_read_user(room, page, (void *)addr))
		return 0;
	return page;
}

/* The new image's own arguments: all of it was just written, and is one stretch. */
static __always_inline bool read_args(void *ctx, struct event *e)
{
	struct task_struct *task = task_current();
	__u64 addr = BPF_CORE_READ(task, mm, arg_start);
	__u64 end = BPF_CORE_READ(task, mm, arg_end);

	for (int i = 0; i < PIECES_MAX && addr < end; i++) {
		char *room = args_room(ctx, e);
		__u64 len = room ? read_piece(room, addr, end - addr) : 0;

		if (!len)
			return false;
		args_added(e, len);
		addr += len;
	}
	return addr >= end;
}

/*
 * A failed call. It is kept in a map's memory, whose contents the verifier does not know:
 * so all turns of the loop over the arguments look alike to it.
 */
struct exec_call {
	__u64 file;
	__u64 argv; /* address of the next pointer */
	__u64 arg; /* rest of an argument, or 0 */
	__u32 pointer_bytes;
	__s32 dfd;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exec_call);
} calls SEC(".maps");

static __always_inline long next_arg(volatile struct exec_call *call)
{
	__u32 bytes = call->pointer_bytes;
	__u64 arg = 0;
	long err = -1;

	if (bytes <= sizeof(arg))
		err = bpf_probe_read_user(&arg, bytes, (void *)call->argv);
	call->argv += bytes;
	call->arg = arg;
	return err;
}

/* The arguments that a failed exec was given, still where the caller has them. */
static __always_inline bool read_argv(void *ctx, struct event *e, volatile struct exec_call *call)
{
	if (!call->argv)
		return true;
	for (int i = 0; i < FAIL_TURNS_MAX; i++) {
		char *room;
		long len;

		if (!call->arg && next_arg(call))
			return false;
		if (!call->arg)
			return true;
		room = args_room(ctx, e);
		if (!room)
			return false;
		len = read_user_str(room, PAGE_BYTES, (void *)call->arg);
		if (len <= 0)
			return false;
		/* A full page ends with a NUL that need not be the argument's own. */
		if (len == PAGE_BYTES)
			call->arg += --len;
		else
			call->arg = 0;
		args_added(e, len);
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
	struct event *e = event_begin(SCRATCH_EXEC, 0);
	const char *file, *interp;

	if (!e)
		return 0;
	file = BPF_CORE_READ(bprm, filename);
	interp = BPF_CORE_READ(bprm, interp);
	e->names.file_len =
		add_name(e, bpf_probe_read_kernel_str(event_room(e), PATH_MAX, file));
	if (interp != file)
		e->names.interp_len =
			add_name(e, bpf_probe_read_kernel_str(event_room(e), INTERP_MAX, interp));
	add_paths(e);
	return event_end(ctx, e, read_args(ctx, e));
}

/* The place of the path among the arguments of execve and execveat, or -1 for other calls. */
static __always_inline int exec_path_arg(__s32 nr, bool compat)
{
	if (nr == (compat ? NR_compat_execve : NR_execve))
		return 0;
	if (nr == (compat ? NR_compat_execveat : NR_execveat))
		return 1;
	if (nr == (__X32_SYSCALL_BIT | NR_x32_execve))
		return 0;
	if (nr == (__X32_SYSCALL_BIT | NR_x32_execveat))
		return 1;
	return -1;
}

/* read_call notes the call's arguments; place is that of the path. */
static __always_inline struct exec_call *read_call(struct pt_regs *regs, __s32 nr, int place,
						   bool compat)
{
	__u32 zero = 0;
	struct exec_call *call = bpf_map_lookup_elem(&calls, &zero);

	if (!call)
		return NULL;
	call->dfd = place ? (__s32)syscall_arg(regs, 0, compat) : AT_FDCWD;
	call->file = syscall_arg(regs, place, compat);
	call->argv = syscall_arg(regs, place + 1, compat);
	call->arg = 0;
	call->pointer_bytes = compat || (nr & __X32_SYSCALL_BIT) ? 4 : 8;
	return call;
}

static __always_inline int handle_fail(void *ctx, struct exec_call *call, __s32 err)
{
	struct event *e = call ? event_begin(SCRATCH_FAIL, err) : NULL;

	if (!e)
		return 0;
	e->dfd = call->dfd;
	e->names.file_len =
		add_name(e, read_user_str(event_room(e), PATH_MAX, (void *)call->file));
	add_paths(e);
	return event_end(ctx, e, read_argv(ctx, e, call));
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret)
{
	bool compat;
	int place;

	/* Nearly all calls are others, and end here. */
	if (exec_path_arg(nr, false) < 0 && exec_path_arg(nr, true) < 0)
		return 0;
	compat = syscall_is_compat(regs);
	place = exec_path_arg(nr, compat);
	if (place < 0 || ret >= 0)
		return 0;
	return NOT_PREEMPTED(handle_fail(ctx, read_call(regs, nr, place, compat), ret));
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec__btf, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return NOT_PREEMPTED(handle_exec(ctx, bprm));
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(exec__raw, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return NOT_PREEMPTED(handle_exec(ctx, bprm));
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
