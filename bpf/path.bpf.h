/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PATH_BPF_H
#define __PATH_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define PATH_MAX 4096
#define NAME_MAX 255
#define PATH_DEPTH_MAX 64
/* A name is read whole or not at all, so the buffer has room for one more. */
#define PATH_BUF_SIZE (PATH_MAX + NAME_MAX + 1)

/*
 * A directory or file as its names from the leaf up to the root of its mount namespace, each
 * with its NUL; user space reverses them. A file in no directory, as of memfd_create, has one
 * name.
 */
struct path_names {
	__u32 len; /* bytes of the names */
	__u32 root_len; /* bytes of the names below the task's own root */
	__u8 in_root; /* the task's root was met on the way up */
	__u8 truncated; /* deeper or longer than there is room for */
	__u8 known; /* set by path_names(): without it there was nothing to start from */
	__u8 deleted; /* the leaf is in no directory: it was removed, or never was in one */
};

static __always_inline struct mount *path_mount(struct vfsmount *mnt)
{
	return (void *)mnt - bpf_core_field_offset(struct mount, mnt);
}

/* Files of memfd_create and the like are roots by themselves, but not that of their mount. */
static __always_inline bool path_is_pseudo(struct dentry *dentry, struct vfsmount *mnt)
{
	return BPF_CORE_READ(dentry, d_parent) == dentry && BPF_CORE_READ(mnt, mnt_root) != dentry;
}

static __always_inline bool dentry_is_deleted(struct dentry *dentry)
{
	return BPF_CORE_READ(dentry, d_parent) != dentry && !BPF_CORE_READ(dentry, d_hash.pprev);
}

/*
 * path_names walks from start upwards, over mount points, into buf[PATH_BUF_SIZE].
 * The state is kept in *out, a map's memory, and not in registers: so both ways through
 * the loop look alike to the verifier, which would else follow 2^PATH_DEPTH_MAX of them.
 */
static __always_inline void path_names(volatile struct path_names *out, char *buf,
				       const struct path *start, const struct path *root)
{
	struct dentry *dentry = BPF_CORE_READ(start, dentry), *parent;
	struct dentry *root_dentry = BPF_CORE_READ(root, dentry);
	struct vfsmount *mnt = BPF_CORE_READ(start, mnt);
	struct vfsmount *root_mnt = BPF_CORE_READ(root, mnt);
	struct mount *mount, *mount_parent;
	__u32 len;
	long n;

	out->known = 1;
	out->deleted = dentry_is_deleted(dentry);
	if (path_is_pseudo(dentry, mnt)) {
		n = bpf_probe_read_kernel_str(buf, NAME_MAX + 1, BPF_CORE_READ(dentry, d_name.name));
		out->len = n > 0 ? n : 0;
		out->deleted = 1;
		return;
	}
	out->truncated = 1;
	for (int i = 0; i < PATH_DEPTH_MAX; i++) {
		len = out->len;
		if (len > PATH_MAX)
			break;
		if (dentry == root_dentry && mnt == root_mnt) {
			out->in_root = 1;
			out->root_len = len;
		}
		parent = BPF_CORE_READ(dentry, d_parent);
		if (dentry == BPF_CORE_READ(mnt, mnt_root) || dentry == parent) {
			mount = path_mount(mnt);
			mount_parent = BPF_CORE_READ(mount, mnt_parent);
			if (mount_parent == mount) {
				out->truncated = 0;
				break;
			}
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			mnt = (void *)mount_parent + bpf_core_field_offset(struct mount, mnt);
			continue;
		}
		n = bpf_probe_read_kernel_str(buf + len, NAME_MAX + 1,
					      BPF_CORE_READ(dentry, d_name.name));
		if (n <= 0)
			break;
		out->len = len + n;
		dentry = parent;
	}
}

/* task_file is what fd stands for in the task, or NULL. */
static __always_inline struct file *task_file(struct task_struct *task, __u32 fd)
{
	struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(fdt, fd);
	struct file *file = NULL;

	if (fd >= BPF_CORE_READ(fdt, max_fds))
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

#endif
