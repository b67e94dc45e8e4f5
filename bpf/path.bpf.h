/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PATH_BPF_H
#define __PATH_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "loop.bpf.h"

#define PATH_MAX 4096
#define NAME_MAX 255
#define PATH_DEPTH_MAX 64
/* A name is read completely or not at all, so the buffer has space for one more. */
#define PATH_BUF_SIZE (PATH_MAX + NAME_MAX + 1)

/*
 * A directory or file as its names, from the leaf up to the root of its mount namespace, each with
 * its NUL byte. User space reverses them. A file without a directory, such as one of memfd_create,
 * has a single name.
 */
struct path_names {
	__u32 len; /* bytes of the names */
	__u32 root_len; /* bytes of the names below the root directory of the task */
	__u8 in_root; /* the path is below the root directory of the task */
	__u8 truncated; /* too deep or too long */
	__u8 known; /* set by path_names(); 0 if there is no path */
	__u8 deleted; /* the leaf has no directory entry: it was removed, or never had one */
};

static __always_inline struct mount *path_mount(struct vfsmount *mnt)
{
	return (void *)mnt - bpf_core_field_offset(struct mount, mnt);
}

/* Files without a directory, as of memfd_create, are roots, but not the root of their mount. */
static __always_inline bool path_is_pseudo(struct dentry *dentry, struct vfsmount *mnt)
{
	return BPF_CORE_READ(dentry, d_parent) == dentry && BPF_CORE_READ(mnt, mnt_root) != dentry;
}

static __always_inline bool dentry_is_deleted(struct dentry *dentry)
{
	return BPF_CORE_READ(dentry, d_parent) != dentry && !BPF_CORE_READ(dentry, d_hash.pprev);
}

struct path_walk {
	volatile struct path_names *out;
	char *buf;
	struct dentry *root_dentry;
	struct vfsmount *root_mnt;
	struct dentry *dentry; /* current place */
	struct vfsmount *mnt;
};

/* path_step adds a name or goes to the mount above, and returns false at the end. */
static __always_inline bool path_step(void *state, __u32 i)
{
	struct path_walk *w = state;
	struct dentry *dentry = w->dentry; /* BPF_CORE_READ(w->dentry, ...) would relocate w->dentry */
	struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
	struct vfsmount *mnt = w->mnt;
	struct mount *mount, *mount_parent;
	__u32 len = w->out->len;
	long n;

	if (len > PATH_MAX)
		return false;
	if (dentry == w->root_dentry && mnt == w->root_mnt) {
		w->out->in_root = 1;
		w->out->root_len = len;
	}
	if (dentry == BPF_CORE_READ(mnt, mnt_root) || dentry == parent) {
		mount = path_mount(mnt);
		mount_parent = BPF_CORE_READ(mount, mnt_parent);
		if (mount_parent == mount) {
			w->out->truncated = 0;
			return false;
		}
		w->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		w->mnt = (void *)mount_parent + bpf_core_field_offset(struct mount, mnt);
		return true;
	}
	n = bpf_probe_read_kernel_str(w->buf + len, NAME_MAX + 1, BPF_CORE_READ(dentry, d_name.name));
	if (n <= 0)
		return false;
	w->out->len = len + n;
	w->dentry = parent;
	return true;
}

/*
 * path_names walks up from start, across mount points, and writes the names to buf[PATH_BUF_SIZE].
 * The result is in *out, which is memory of a map, and not in registers: so the verifier considers
 * both branches of the loop equal. Otherwise it would check 2^PATH_DEPTH_MAX paths.
 */
static __always_inline void path_names(volatile struct path_names *out, char *buf,
				       const struct path *start, const struct path *root)
{
	struct dentry *dentry = BPF_CORE_READ(start, dentry);
	struct vfsmount *mnt = BPF_CORE_READ(start, mnt);
	struct path_walk w = {
		.out = out,
		.buf = buf,
		.root_dentry = BPF_CORE_READ(root, dentry),
		.root_mnt = BPF_CORE_READ(root, mnt),
		.dentry = dentry,
		.mnt = mnt,
	};
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
	loop_while(PATH_DEPTH_MAX, path_step, &w);
}

/* task_file returns the file that fd refers to in the task, or NULL. */
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
