/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __GIVEN_BPF_H
#define __GIVEN_BPF_H

#include "compat.bpf.h"
#include "path.bpf.h"
#include "task.bpf.h"

#define AT_FDCWD -100

/*
 * A path as a task gives it to a system call (value.GivenPath in Go). Its text follows the event,
 * and then the names of the directory that it is relative to.
 */
struct given_path {
	__s32 dfd; /* of that directory, or AT_FDCWD for the current directory */
	__u32 len; /* of the text including the NUL byte; 0 if it could not be read */
	struct path_names base;
};

#define GIVEN_MAX (PATH_MAX + PATH_BUF_SIZE)

/*
 * given_base reads the directory that a path with this first byte is relative to: the root of the
 * task, the current directory or that of a descriptor. A descriptor of a file outside of any
 * directory has none.
 */
static __always_inline void given_base(volatile struct path_names *base, char *buf, char first,
				       __s32 dfd)
{
	struct task_struct *task = task_current();
	struct fs_struct *fs = BPF_CORE_READ(task, fs);
	const struct path *root = __builtin_preserve_access_index(&fs->root);
	const struct path *start = root;
	struct file *file;

	if (first != '/' && dfd == AT_FDCWD) {
		start = __builtin_preserve_access_index(&fs->pwd);
	} else if (first != '/') {
		file = task_file(task, dfd);
		if (!file)
			return;
		start = __builtin_preserve_access_index(&file->f_path);
		if (path_is_pseudo(BPF_CORE_READ(start, dentry), BPF_CORE_READ(start, mnt)))
			return;
	}
	path_names(base, buf, start, root);
}

/*
 * given_read reads a path to buf[GIVEN_MAX], the directory only if full is set, and returns the
 * number of bytes. g is zeroed memory of a map (see path_names()). If a call has a descriptor and
 * no text, the directory is the file of the descriptor itself.
 */
static __always_inline __u32 given_read(struct given_path *g, char *buf, const char *text,
					__s32 dfd, bool full)
{
	long len = text ? read_user_str(buf, PATH_MAX, text) : 0;

	g->dfd = dfd;
	if (len <= 0 || len > PATH_MAX) {
		len = 0;
		buf[0] = 0;
	}
	g->len = len;
	len &= 2 * PATH_MAX - 1;
	if (full && len <= PATH_MAX && (len || (!text && dfd >= 0)))
		given_base(&g->base, buf + len, buf[0], dfd);
	return len + g->base.len;
}

#endif
