// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "file.bpf.h"
#include "holder.bpf.h"
#include "list.bpf.h"
#include "task.bpf.h"

#define O_CLOEXEC 02000000
#define PF_KTHREAD 0x00200000

/* Only this file, or this file system: by the device of its mount, and that of stat(2). */
const volatile bool targ_by_file = false;
const volatile bool targ_by_dev = false;
const volatile __u64 targ_inode = 0;
const volatile __u32 targ_mount_dev = 0;
const volatile __u32 targ_dev = 0;

enum use {
	USE_FD,
	USE_CWD,
	USE_ROOT,
	USE_EXE,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum use *use_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 flags; /* of open(2) */
	__u64 position;
	__u64 size;
	__u32 fd;
	__u32 mode;
	__u32 links;
	__u32 use; /* enum use */
	struct file_info file;
	char data[PATH_BUF_SIZE]; /* names of the path */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

static __always_inline bool inode_wanted(struct inode *inode)
{
	if (targ_by_file)
		return BPF_CORE_READ(inode, i_ino) == targ_inode &&
		       inode_is_on(inode, targ_mount_dev, targ_dev);
	return !targ_by_dev || BPF_CORE_READ(inode, i_sb, s_dev) == targ_mount_dev;
}

/* begin_event returns an event for the inode if it is wanted, filled in except for the path. */
static __always_inline struct event *begin_event(struct task_struct *task, struct inode *inode)
{
	__u32 zero = 0;
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);

	if (!e || !inode || !inode_wanted(inode))
		return NULL;
	__builtin_memset(e, 0, offsetof(struct event, data));
	task_info_read(&e->task, task);
	e->task.time_ns = bpf_ktime_get_boot_ns();
	e->mode = BPF_CORE_READ(inode, i_mode);
	e->size = BPF_CORE_READ(inode, i_size);
	e->links = BPF_CORE_READ(inode, i_nlink);
	return e;
}

static __always_inline void send_event(struct seq_file *seq, struct event *e,
				       const struct path *path)
{
	__u32 len;

	file_info_read(&e->file, e->data, path);
	len = e->file.path.len;
	if (len <= PATH_BUF_SIZE)
		list_send(seq, e, offsetof(struct event, data) + len);
}

/* As in /proc/PID/fdinfo: close-on-exec belongs to the descriptor, not to the file. */
static __always_inline __u64 file_flags(struct task_struct *task, struct file *file, __u32 fd)
{
	unsigned long *bits = BPF_CORE_READ(task, files, fdt, close_on_exec), word = 0;
	__u64 flags = BPF_CORE_READ(file, f_flags) & ~O_CLOEXEC;

	bpf_probe_read_kernel(&word, sizeof(word), bits + fd / 64);
	return word & 1UL << fd % 64 ? flags | O_CLOEXEC : flags;
}

SEC("iter/task_file")
int files(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	__u32 fd = ctx->fd;
	struct event *e;

	if (!task || !file || !task_wanted(task))
		return 0;
	if (!reports_resource(task, BPF_CORE_READ(task, files), BPF_CORE_READ(task, group_leader, files)))
		return 0;
	e = begin_event(task, BPF_CORE_READ(file, f_inode));
	if (!e)
		return 0;
	e->fd = fd;
	e->flags = file_flags(task, file, fd);
	e->position = BPF_CORE_READ(file, f_pos);
	send_event(ctx->meta->seq, e, __builtin_preserve_access_index(&file->f_path));
	return 0;
}

static __always_inline const struct path *path_of_use(struct task_struct *task, __u32 use)
{
	struct fs_struct *fs = BPF_CORE_READ(task, fs);
	struct mm_struct *mm = process_mm(task);
	struct file *exe = BPF_CORE_READ(mm, exe_file);

	if (use == USE_EXE)
		return exe ? __builtin_preserve_access_index(&exe->f_path) : NULL;
	if (!fs)
		return NULL;
	if (use == USE_CWD)
		return __builtin_preserve_access_index(&fs->pwd);
	return __builtin_preserve_access_index(&fs->root);
}

static __always_inline void send_place(struct seq_file *seq, struct task_struct *task, __u32 use)
{
	const struct path *path = path_of_use(task, use);
	struct event *e;

	if (!path)
		return;
	e = begin_event(task, BPF_CORE_READ(path, dentry, d_inode));
	if (!e)
		return;
	e->use = use;
	send_event(seq, e, path);
}

/* Files that a process holds without a descriptor. Threads can have their own directories. */
SEC("iter/task")
int places(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task || BPF_CORE_READ(task, flags) & PF_KTHREAD || !task_wanted(task))
		return 0;
	if (reports_resource(task, BPF_CORE_READ(task, fs), BPF_CORE_READ(task, group_leader, fs))) {
		send_place(ctx->meta->seq, task, USE_CWD);
		send_place(ctx->meta->seq, task, USE_ROOT);
	}
	if (BPF_CORE_READ(task, pid) == BPF_CORE_READ(task, tgid))
		send_place(ctx->meta->seq, task, USE_EXE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
