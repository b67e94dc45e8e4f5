/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BIOTAIL_BPF_H
#define __BIOTAIL_BPF_H

#include "biofile.bpf.h"
#include "path.bpf.h"

/* What follows an event if want_file is set: blockio.file in Go. */
struct io_tail {
	__u64 ino;
	__u64 owner_cgroup_id;
	__u32 owner_pid; /* 0 if the owner is unknown */
	__u32 dev;
	__u32 mount_dev;
	__u8 data; /* enum io_data */
	__u8 pad[3];
	char owner[TASK_COMM_LEN];
	struct path_names path; /* the names follow */
};

/* Writes the names from the dentry up to the root of the file system to buf[PATH_BUF_SIZE]. */
static __always_inline void dentry_names(volatile struct path_names *out, char *buf,
					 struct dentry *dentry)
{
	struct dentry *root = BPF_CORE_READ(dentry, d_sb, s_root), *parent;
	__u32 len;
	long n;

	out->deleted = dentry_is_deleted(dentry);
	out->truncated = 1;
	for (int i = 0; i < PATH_DEPTH_MAX; i++) {
		len = out->len;
		if (len > PATH_MAX)
			break;
		if (dentry == root) {
			out->truncated = 0;
			out->known = 1;
			break;
		}
		parent = BPF_CORE_READ(dentry, d_parent);
		if (dentry == parent) /* not connected to the root: of a file handle */
			return;
		n = bpf_probe_read_kernel_str(buf + len, NAME_MAX + 1,
					      BPF_CORE_READ(dentry, d_name.name));
		if (n <= 0)
			return;
		out->len = len + n;
		dentry = parent;
	}
	out->known = 1;
}

/* Fills the tail at completion. */
static __noinline int io_tail_read(struct io_tail *tail, char *buf, struct io_file *f)
{
	struct dentry *dentry;

	if (!tail || !buf || !f)
		return 0;
	tail->data = f->data;
	if (f->owner_known) {
		tail->owner_pid = f->owner.pid;
		tail->owner_cgroup_id = f->owner.cgroup_id;
		__builtin_memcpy(tail->owner, f->owner.comm, sizeof(tail->owner));
	}
	if (f->data != IO_DATA_FILE)
		return 0;
	tail->ino = f->ino;
	tail->dev = f->dev;
	tail->mount_dev = f->mount_dev;
	dentry = io_file_dentry(f);
	if (dentry)
		dentry_names(&tail->path, buf, dentry);
	return 0;
}

#endif
