// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "inode.bpf.h"
#include "path.bpf.h"
#include "rw.bpf.h"
#include "task.bpf.h"

#define S_IFMT 00170000
#define S_IFREG 0100000
#define DIR_DEPTH_MAX 64

/* Include files that are not regular: sockets, pipes, devices. */
const volatile bool targ_all = false;
const volatile bool targ_reads = true;
const volatile bool targ_writes = true;
/* Only files below this directory: its inode, and its device by its mount and by stat(2). */
const volatile __u64 targ_dir_inode = 0;
const volatile __u32 targ_dir_mount_dev = 0;
const volatile __u32 targ_dir_dev = 0;

struct table_key {
	__u64 inode;
	__u64 instance; /* inode_instance() */
	__u64 cgroup_id;
	__u32 dev; /* as in stat(2), MAJOR << 20 | MINOR */
	__u32 mode;
	__u32 pid;
	__u32 tid;
};

struct table_value {
	__u64 reads;
	__u64 writes;
	__u64 read_bytes;
	__u64 write_bytes;
	__u64 since_ns; /* when the members below were read */
	__u32 uid;
	char comm[TASK_COMM_LEN];
	char name[NAME_MAX + 1];
	__u32 pad;
};

#include "table.bpf.h"

struct counters {
	__u64 closed; /* calls whose descriptor was closed before they returned */
};

#include "counters.bpf.h"

/*
 * Walks up to the root of the file system, starting at the parent. Subvolumes of btrfs are
 * directories on this path, and can have the same inode number as the directory that is searched
 * for.
 */
static __always_inline bool is_below(struct dentry *dentry)
{
	struct dentry *parent;
	struct inode *inode;

	for (int i = 0; i < DIR_DEPTH_MAX; i++) {
		parent = BPF_CORE_READ(dentry, d_parent);
		inode = BPF_CORE_READ(parent, d_inode);
		if (BPF_CORE_READ(inode, i_ino) == targ_dir_inode &&
		    inode_is_on(inode, targ_dir_mount_dev, targ_dir_dev))
			return true;
		if (parent == dentry)
			return false;
		dentry = parent;
	}
	return false;
}

static __always_inline struct table_value *find(struct file *file, struct inode *inode, __u32 mode)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct table_key key = {
		.inode = BPF_CORE_READ(inode, i_ino),
		.instance = inode_instance(inode),
		.cgroup_id = task_current_cgroup_id(),
		.dev = inode_dev(inode),
		.mode = mode,
		.pid = id >> 32,
		.tid = id,
	};
	struct table_value *value = table_find(&key);

	if (!value || value->reads || value->writes)
		return value;
	value->since_ns = bpf_ktime_get_ns();
	value->uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(value->comm, sizeof(value->comm));
	bpf_probe_read_kernel_str(value->name, sizeof(value->name),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	return value;
}

static __always_inline void add(__u32 fd, bool is_write, __u64 bytes)
{
	struct file *file = task_file(task_current(), fd);
	struct table_value *value;
	struct inode *inode;
	__u32 mode;

	if (!file) {
		counter_add(closed);
		return;
	}
	inode = BPF_CORE_READ(file, f_inode);
	mode = BPF_CORE_READ(inode, i_mode) & S_IFMT;
	if (!targ_all && mode != S_IFREG)
		return;
	if (targ_dir_inode && !is_below(BPF_CORE_READ(file, f_path.dentry)))
		return;
	value = find(file, inode, mode);
	if (!value)
		return;
	if (is_write) {
		table_add(value, writes, 1);
		table_add(value, write_bytes, bytes);
	} else {
		table_add(value, reads, 1);
		table_add(value, read_bytes, bytes);
	}
}

static __always_inline int handle_exit(struct pt_regs *regs, __s32 nr, bool compat, long ret)
{
	struct rw_call call;

	if (compat)
		ret = (__s32)ret;
	if (nr < 0 || ret < 0)
		return 0;
	call = rw_call(nr & ~__X32_SYSCALL_BIT, compat);
	if (call.from < 0 && call.to < 0)
		return 0;
	if (!task_current_wanted())
		return 0;
	preempt_off();
	if (call.from >= 0 && targ_reads)
		add(syscall_arg(regs, call.from, compat), false, ret);
	if (call.to >= 0 && targ_writes)
		add(syscall_arg(regs, call.to, compat), true, ret);
	preempt_on();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(exit__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(regs, SYSCALL_NR(regs), syscall_is_compat_btf(regs), ret);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(exit__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(regs, syscall_nr(regs), syscall_is_compat(regs), ret);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
