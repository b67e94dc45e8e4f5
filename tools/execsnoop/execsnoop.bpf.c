// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "loop.bpf.h"
#include "task.bpf.h"
#include "compat.bpf.h"
#include "syscall.bpf.h"
#include "path.bpf.h"

#define AT_FDCWD -100
#define PAGE_BYTES 4096
/* Arguments are read in pieces of several pages, or of one if not all of them are resident. */
#define PIECE (3 * PAGE_BYTES)
/*
 * 2 MiB: the limit for arguments with the usual stack limit of 8 MiB. The verifier walks each
 * iteration.
 */
#define PIECES_MAX ((2 << 20) / PIECE + 2)
/* An argument of a failed call takes one iteration, or one per page. */
#define FAIL_STEPS_MAX 256
/* Space for the names: the file and two paths, and an interpreter. */
#define NAMES_SIZE (1 << 14)
#define INTERP_MAX 2048

const volatile bool want_exe = false;
const volatile bool want_cwd = false;
const volatile __u32 targ_ppid = 0;

/* Lengths include the NUL byte, and are 0 if the string could not be read. */
struct exec_names {
	__u32 file_len;
	__u32 interp_len;
	struct path_names exe;
	struct path_names cwd;
};

/*
 * One exec. Its arguments can need several records: all have the same head, the first one has the
 * names, and args_more is set in all but the last one.
 */
struct event {
	struct task_info task;
	__u64 age_ns;
	__s32 ret;
	__u32 ppid;
	__u32 cpu;
	__s32 dfd; /* directory of a failed execveat, otherwise AT_FDCWD */
	__u32 data_len;
	__u32 args_len; /* part of data_len, at its end */
	__u32 args_off; /* bytes of arguments in earlier records */
	__u8 args_more;
	__u8 args_truncated;
	__u8 pad[2];
	struct exec_names names;
	char parent_comm[TASK_COMM_LEN];
	char data[NAMES_SIZE + PIECE]; /* the names in this order, and arguments */
};

/* A failing exec can interrupt the program for another one, so each has its own buffer. */
enum {
	SCRATCH_EXEC,
	SCRATCH_FAIL,
	SCRATCH_MAX
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_MAX);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

/* event_begin returns the head, filled from the current task, or NULL if it is not wanted. */
static __always_inline struct event *event_begin(__u32 which, __s32 ret)
{
	struct task_struct *task = task_current(), *parent;
	struct event *e;
	__u32 ppid;

	if (!task_current_wanted())
		return NULL;
	parent = BPF_CORE_READ(task, real_parent);
	ppid = BPF_CORE_READ(parent, tgid);
	if (targ_ppid && task_local_pid(parent) != targ_ppid)
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

static __always_inline char *event_buf(struct event *e)
{
	return e->data + (e->data_len & (NAMES_SIZE - 1));
}

/* add_name adds a string with the result of its read. */
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

	path_names(names, event_buf(e), start, __builtin_preserve_access_index(&fs->root));
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
	return event_output_wake(ctx, e, offsetof(struct event, data) + len, e->task.time_ns, e->args_more);
}

/*
 * Sends the record to free the buffer. If it cannot be sent, the last record, which has no data and
 * therefore may still fit, reports that something is missing.
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

static __always_inline void args_added(struct event *e, __u32 len)
{
	e->data_len += len;
	e->args_len += len;
}

/*
 * Position in the arguments. The steps below are global functions, which the verifier checks once
 * instead of in every iteration of the loops that call them. It is in a map, because global
 * functions accept no pointers before 5.12 (e5069b9c23b3).
 */
struct args_walk {
	__u64 arg; /* address of the rest of an argument, or 0 */
	__u64 end; /* end of all arguments, of a successful exec */
	__u64 argv; /* of a failed exec: address of the next pointer */
	__u64 file;
	__u32 pointer_bytes;
	__s32 dfd;
	bool done; /* all arguments have been read */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_MAX);
	__type(key, __u32);
	__type(value, struct args_walk);
} walks SEC(".maps");

/*
 * read_piece reads until the end of the piece, or of its first page, and returns the length or 0.
 * The barriers make the compiler check the register that is used: the verifier of 5.10 does not
 * track that two registers are equal.
 */
static __always_inline __u64 read_piece(char *buf, __u64 addr, __u64 left)
{
	__u64 page = PAGE_BYTES - (addr & (PAGE_BYTES - 1));
	__u64 len = page + PIECE - PAGE_BYTES;

	if (len > left)
		len = left;
	barrier_var(len);
	if (len > PIECE)
		return 0;
	if (!bpf_probe_read_user(buf, len, (void *)addr))
		return len;
	barrier_var(page);
	if (len <= page || page > PAGE_BYTES || bpf_probe_read_user(buf, page, (void *)addr))
		return 0;
	return page;
}

/*
 * A step returns whether there may be more. This one reads the arguments of the new image, which
 * were just written and are contiguous.
 */
__noinline int step_exec(void)
{
	__u32 which = SCRATCH_EXEC;
	struct event *e = bpf_map_lookup_elem(&scratch, &which);
	struct args_walk *walk = bpf_map_lookup_elem(&walks, &which);
	__u64 len;

	if (!e || !walk)
		return false;
	walk->done = walk->arg >= walk->end;
	if (walk->done)
		return false;
	len = read_piece(event_buf(e), walk->arg, walk->end - walk->arg);
	if (!len)
		return false;
	args_added(e, len);
	walk->arg += len;
	return true;
}

static __always_inline long next_arg(struct args_walk *walk)
{
	__u32 bytes = walk->pointer_bytes;
	__u64 arg = 0;
	long err = -1;

	if (bytes <= sizeof(arg))
		err = bpf_probe_read_user(&arg, bytes, (void *)walk->argv);
	walk->argv += bytes;
	walk->arg = arg;
	return err;
}

/* Reads the arguments of a failed exec from the memory of the caller. */
__noinline int step_fail(void)
{
	__u32 which = SCRATCH_FAIL;
	struct event *e = bpf_map_lookup_elem(&scratch, &which);
	struct args_walk *walk = bpf_map_lookup_elem(&walks, &which);
	long len;

	if (!e || !walk)
		return false;
	if (walk->argv && !walk->arg && next_arg(walk))
		return false;
	walk->done = !walk->arg;
	if (walk->done)
		return false;
	len = read_user_str(event_buf(e), PAGE_BYTES, (void *)walk->arg);
	if (len <= 0)
		return false;
	/* A full page ends with a NUL byte that need not belong to the argument. */
	if (len == PAGE_BYTES)
		walk->arg += --len;
	else
		walk->arg = 0;
	args_added(e, len);
	return true;
}

struct args_steps {
	void *ctx;
	struct event *event;
	int (*step)(void);
};

static __always_inline bool args_step(void *state, __u32 i)
{
	const struct args_steps *s = state;

	return (s->event->data_len < NAMES_SIZE || args_flush(s->ctx, s->event)) && s->step();
}

static __always_inline int walk_args(void *ctx, struct event *e, struct args_walk *walk,
				     int (*const step)(void), int max)
{
	struct args_steps s = { .ctx = ctx, .event = e, .step = step };

	walk->done = false;
	loop_while(max, args_step, &s);
	e->args_truncated = !walk->done;
	if (record_send(ctx, e))
		lost_add(buffer_full);
	return 0;
}

/*
 * Runs in the new image, in its only thread, which is the leader, whatever thread and call it was.
 */
static __always_inline int handle_exec(void *ctx, struct linux_binprm *bprm)
{
	struct task_struct *task = task_current();
	struct event *e = event_begin(SCRATCH_EXEC, 0);
	__u32 which = SCRATCH_EXEC;
	struct args_walk *walk = bpf_map_lookup_elem(&walks, &which);
	const char *file, *interp;

	if (!e || !walk)
		return 0;
	walk->arg = BPF_CORE_READ(task, mm, arg_start);
	walk->end = BPF_CORE_READ(task, mm, arg_end);
	file = BPF_CORE_READ(bprm, filename);
	interp = BPF_CORE_READ(bprm, interp);
	e->names.file_len =
		add_name(e, bpf_probe_read_kernel_str(event_buf(e), PATH_MAX, file));
	if (interp != file)
		e->names.interp_len =
			add_name(e, bpf_probe_read_kernel_str(event_buf(e), INTERP_MAX, interp));
	add_paths(e);
	return walk_args(ctx, e, walk, step_exec, PIECES_MAX);
}

/* read_call reads the arguments of the call; path_arg is the index of the path. */
static __always_inline struct args_walk *read_call(struct pt_regs *regs, __s32 nr, int path_arg,
						   bool compat)
{
	__u32 which = SCRATCH_FAIL;
	struct args_walk *walk = bpf_map_lookup_elem(&walks, &which);

	if (!walk)
		return NULL;
	walk->dfd = path_arg ? (__s32)syscall_arg(regs, 0, compat) : AT_FDCWD;
	walk->file = syscall_arg(regs, path_arg, compat);
	walk->argv = syscall_arg(regs, path_arg + 1, compat);
	walk->arg = 0;
	walk->pointer_bytes = compat || (nr & __X32_SYSCALL_BIT) ? 4 : 8;
	return walk;
}

static __always_inline int handle_fail(void *ctx, struct args_walk *walk, __s32 err)
{
	struct event *e = walk ? event_begin(SCRATCH_FAIL, err) : NULL;

	if (!e)
		return 0;
	e->dfd = walk->dfd;
	e->names.file_len =
		add_name(e, read_user_str(event_buf(e), PATH_MAX, (void *)walk->file));
	add_paths(e);
	return walk_args(ctx, e, walk, step_fail, FAIL_STEPS_MAX);
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret,
				       bool btf)
{
	bool compat;
	int path_arg;

	/* Almost all calls are others, and return here. */
	if (!syscall_is_exec_in_any(nr))
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	path_arg = syscall_exec_path_arg(nr, compat);
	if (path_arg < 0 || ret >= 0)
		return 0;
	return NOT_PREEMPTED(handle_fail(ctx, read_call(regs, nr, path_arg, compat), ret));
}

/*
 * Where programs can be preempted, the program for the hook "exec" exists twice: the second one
 * handles the execs that the kernel skipped the first one for. The first one notes what it handles,
 * by task and by the number of execs of the task. An entry that the second one was skipped for is
 * replaced by the next exec of a task at that address.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u64);
} handled_execs SEC(".maps");

static __always_inline int exec_first(void *ctx, struct linux_binprm *bprm)
{
	struct task_struct *task = task_current();
	__u64 key = (__u64)task, nr;

	if (TRACEPOINTS_ARE_PREEMPTIBLE) {
		nr = BPF_CORE_READ(task, self_exec_id);
		if (bpf_map_update_elem(&handled_execs, &key, &nr, BPF_ANY))
			return 0; /* left to the second program */
	}
	return handle_exec(ctx, bprm);
}

static __always_inline int exec_second(void *ctx, struct linux_binprm *bprm)
{
	struct task_struct *task = task_current();
	__u64 key = (__u64)task, *nr;

	if (!TRACEPOINTS_ARE_PREEMPTIBLE)
		return 0;
	nr = bpf_map_lookup_elem(&handled_execs, &key);
	if (!nr || *nr != BPF_CORE_READ(task, self_exec_id))
		return handle_exec(ctx, bprm);
	bpf_map_delete_elem(&handled_execs, &key);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec__btf, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return NOT_PREEMPTED(exec_first(ctx, bprm));
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec__btf__again, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return NOT_PREEMPTED(exec_second(ctx, bprm));
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(exec__raw, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return NOT_PREEMPTED(exec_first(ctx, bprm));
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(exec__raw__again, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	return NOT_PREEMPTED(exec_second(ctx, bprm));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(fail__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(fail__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int fail__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
