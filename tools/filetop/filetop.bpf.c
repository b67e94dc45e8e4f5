// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "inode.bpf.h"
#include "path.bpf.h"
#include "task.bpf.h"

#define BELOW_MAX 1
#include "below.bpf.h"

/* Include files that are not regular: sockets, pipes, devices. */
const volatile bool targ_all = false;
const volatile bool targ_reads = true;
const volatile bool targ_writes = true;

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

#define RW_COUNTERS __u64 too_deep; /* calls on files too many levels below the root, with --directory */
#include "rwexit.bpf.h"

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

static __always_inline bool is_below(struct dentry *dentry)
{
	int index = below_find(dentry);

	if (index == BELOW_TOO_DEEP)
		counter_add(too_deep);
	return index >= 0;
}

static __always_inline void rw_done(struct file *file, bool is_write, __u64 bytes)
{
	struct table_value *value;
	struct inode *inode;
	__u32 type;

	if (is_write ? !targ_writes : !targ_reads)
		return;
	inode = BPF_CORE_READ(file, f_inode);
	type = inode_type(inode);
	if (!targ_all && type != S_IFREG)
		return;
	if (targ_nr_dirs && !is_below(BPF_CORE_READ(file, f_path.dentry)))
		return;
	value = find(file, inode, type);
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
