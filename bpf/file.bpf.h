/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FILE_BPF_H
#define __FILE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "inode.bpf.h"
#include "path.bpf.h"

#define FS_NAME_LEN 16
#define NSFS_MAGIC 0x6e736673

/* The identity of a file (value.File in Go). The names of its path follow the event. */
struct file_info {
	__u64 inode;
	__u32 dev; /* as in stat(2): major << 20 | minor */
	bool deleted; /* the directory entry by which it was opened was removed */
	bool pseudo; /* without a directory: its name is not a path */
	__u8 pad[2];
	char fs[FS_NAME_LEN];
	struct path_names path;
	__u32 pad2;
};

/* The type of a namespace is the name in its operations. */
static __always_inline const char *namespace_name(struct inode *inode)
{
	struct ns_common *ns = BPF_CORE_READ(inode, i_private);

	return BPF_CORE_READ(ns, ops, name);
}

static __always_inline void file_name_read(struct file_info *info, char *buf,
					   struct dentry *dentry, struct inode *inode)
{
	const char *name = (void *)BPF_CORE_READ(dentry, d_name.name);
	long n;

	if (BPF_CORE_READ(inode, i_sb, s_magic) == NSFS_MAGIC)
		name = namespace_name(inode);
	n = bpf_probe_read_kernel_str(buf, NAME_MAX + 1, name);
	info->path.len = n > 0 ? n : 0;
}

static __always_inline void file_info_inode(struct file_info *info, struct inode *inode)
{
	info->inode = BPF_CORE_READ(inode, i_ino);
	info->dev = inode_dev(inode);
	bpf_probe_read_kernel_str(&info->fs, sizeof(info->fs),
				  BPF_CORE_READ(inode, i_sb, s_type, name));
}

/*
 * file_info_read reads the identity of the file that a path refers to, and its names into
 * buf[PATH_BUF_SIZE]. info is memory of a map (see path_names()) and zeroed. Files of pipes,
 * sockets, memfd_create and similar have a name, but no directory.
 */
static __noinline long file_info_read(struct file_info *info, char *buf, const struct path *path)
{
	struct dentry *dentry;
	struct inode *inode;

	if (!info || !buf)
		return 0;
	dentry = BPF_CORE_READ(path, dentry);
	inode = BPF_CORE_READ(dentry, d_inode);
	file_info_inode(info, inode);
	info->deleted = dentry_is_deleted(dentry);
	info->pseudo = path_is_pseudo(dentry, BPF_CORE_READ(path, mnt));
	if (info->pseudo)
		file_name_read(info, buf, dentry, inode);
	else
		path_names(&info->path, buf, path, NULL);
	return 0;
}

#endif
