// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "file.bpf.h"
#include "fscall.bpf.h"
#include "task.bpf.h"

#define FMODE_CREATED (1 << 20)

const volatile bool want_full_path = false;

struct event {
	struct task_info task; /* that removes the last name */
	__u64 age_ns; /* CLOCK_BOOTTIME */
	__u32 creator_pid;
	bool replaced; /* by a rename of another file */
	__u8 pad[3];
	struct file_info file;
	char data[PATH_BUF_SIZE]; /* names of the path */
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

struct scratch {
	struct event event;
	struct path path;
};

#include "scratch.bpf.h"

struct file_key {
	__u64 inode;
	__u64 instance; /* inode_instance() */
	__u64 super_block;
};

/* A file that was created during the run and has a name. */
struct created {
	__u64 time_ns; /* CLOCK_BOOTTIME */
	struct vfsmount *mnt; /* through which it was created */
	__u32 pid;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 19);
	__type(key, struct file_key);
	__type(value, struct created);
} files SEC(".maps");

static __always_inline struct file_key key_of(const struct inode *inode)
{
	return (struct file_key){
		.inode = BPF_CORE_READ(inode, i_ino),
		.instance = inode_instance(inode),
		.super_block = (__u64)BPF_CORE_READ(inode, i_sb),
	};
}

static __always_inline int handle_open(struct pt_regs *regs, __s32 nr, bool compat, long ret)
{
	struct created c = {};
	struct file_key key;
	struct file *file;

	if (compat)
		ret = (__s32)ret;
	if (nr < 0 || ret < 0 || fs_call(nr & ~__X32_SYSCALL_BIT, compat) != FS_CALL_OPEN)
		return 0;
	file = task_file(task_current(), ret);
	if (!file || !(BPF_CORE_READ(file, f_mode) & FMODE_CREATED))
		return 0;
	c.time_ns = bpf_ktime_get_boot_ns();
	c.mnt = BPF_CORE_READ(file, f_path.mnt);
	c.pid = bpf_get_current_pid_tgid() >> 32;
	key = key_of(BPF_CORE_READ(file, f_inode));
	if (bpf_map_update_elem(&files, &key, &c, BPF_ANY))
		lost_add(map_full);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(create__btf, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_open(regs, SYSCALL_NR(regs), syscall_is_compat_btf(regs), ret));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(create__raw, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_open(regs, syscall_nr(regs), syscall_is_compat(regs), ret));
}

SEC("tp/raw_syscalls/sys_exit")
int create__tp(struct trace_event_raw_sys_exit *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return handle_open(regs, syscall_number(ctx->id), syscall_is_compat(regs), ctx->ret);
}

/* The mount may have been removed: then its memory belongs to something else. */
static __always_inline bool mount_is_of(const struct vfsmount *mnt, const struct dentry *dentry)
{
	return mnt && BPF_CORE_READ(mnt, mnt_sb) == BPF_CORE_READ(dentry, d_sb);
}

static __always_inline void read_file(struct scratch *s, struct dentry *dentry,
				      struct inode *inode, struct vfsmount *mnt)
{
	struct file_info *info = &s->event.file;
	long n;

	if (want_full_path && mount_is_of(mnt, dentry)) {
		s->path.mnt = mnt;
		s->path.dentry = dentry;
		file_info_read(info, s->event.data, &s->path);
		return;
	}
	file_info_inode(info, inode);
	n = bpf_probe_read_kernel_str(s->event.data, NAME_MAX + 1, BPF_CORE_READ(dentry, d_name.name));
	info->path.len = n > 0 ? n : 0;
	info->path.truncated = want_full_path;
}

static __always_inline void send_event(void *ctx, struct dentry *dentry, struct inode *inode,
				       const struct created *c, bool replaced)
{
	struct scratch *s = scratch_begin();
	struct event *e;
	__u32 len;

	if (!s)
		return;
	e = &s->event;
	task_info_current(&e->task);
	e->age_ns = e->task.time_ns - c->time_ns;
	e->creator_pid = c->pid;
	e->replaced = replaced;
	read_file(s, dentry, inode, c->mnt);
	len = e->file.path.len;
	if (len <= PATH_BUF_SIZE)
		event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
	scratch_end();
}

/* A name of a file was removed. The file system has already decreased the number of links. */
static __always_inline int handle_removal(void *ctx, struct dentry *dentry, bool replaced)
{
	struct inode *inode = BPF_CORE_READ(dentry, d_inode);
	struct created *entry, c;
	struct file_key key;

	if (!inode || BPF_CORE_READ(inode, i_nlink))
		return 0;
	key = key_of(inode);
	entry = bpf_map_lookup_elem(&files, &key);
	if (!entry)
		return 0;
	c = *entry;
	bpf_map_delete_elem(&files, &key);
	if (task_current_wanted())
		send_event(ctx, dentry, inode, &c, replaced);
	return 0;
}

/* d_delete(dentry) ends a successful unlink. */
SEC("fentry/d_delete")
int BPF_PROG(delete__fentry, struct dentry *dentry)
{
	return handle_removal(ctx, dentry, false);
}

SEC("kprobe/d_delete")
int BPF_KPROBE(delete__kprobe, struct dentry *dentry)
{
	return handle_removal(ctx, dentry, false);
}

/* d_move(dentry, target) ends a successful rename. target is the file that was replaced, if any. */
SEC("fentry/d_move")
int BPF_PROG(replace__fentry, struct dentry *dentry, struct dentry *target)
{
	return handle_removal(ctx, target, true);
}

SEC("kprobe/d_move")
int BPF_KPROBE(replace__kprobe, struct dentry *dentry, struct dentry *target)
{
	return handle_removal(ctx, target, true);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
