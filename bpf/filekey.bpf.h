/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FILEKEY_BPF_H
#define __FILEKEY_BPF_H

#include "biofile.bpf.h"
#include "path.bpf.h"

/* The file and the task that the data of a request is from, to group by; zero without want_file. */
struct file_key {
	__u64 ino;
	__u64 cgroup_id;
	__u32 dev; /* as in stat(2) */
	__u32 pid; /* 0 if the task is unknown */
	__u32 data; /* enum io_data */
	char comm[TASK_COMM_LEN];
	__u32 pad;
};

static __always_inline void file_key_read(struct file_key *key, const struct io_file *f)
{
	key->data = f->data;
	if (f->data == IO_DATA_FILE) {
		key->ino = f->ino;
		key->dev = f->dev;
	}
	if (!f->owner_known)
		return;
	key->cgroup_id = f->owner.cgroup_id;
	key->pid = f->owner.pid;
	__builtin_memcpy(key->comm, f->owner.comm, sizeof(key->comm));
}

/* Reads the name of the file, if it has not been read yet. */
static __always_inline void file_name_read(char name[NAME_MAX + 1], struct io_file *f)
{
	struct dentry *dentry;

	if (f->data != IO_DATA_FILE || name[0])
		return;
	dentry = io_file_dentry(f);
	if (dentry)
		bpf_probe_read_kernel_str(name, NAME_MAX + 1, BPF_CORE_READ(dentry, d_name.name));
}

#endif
