/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BELOW_BPF_H
#define __BELOW_BPF_H

#include "inode.bpf.h"

/*
 * Whether a file is below a directory, in the same file system. Directories are identified by their
 * inode, and by their device in mountinfo and in stat(2) (system.FileID in Go). The tool defines
 * BELOW_MAX, their maximum number.
 */

#define BELOW_DEPTH_MAX 64

#define BELOW_NONE (-1)
#define BELOW_TOO_DEEP (-2) /* no directory within BELOW_DEPTH_MAX levels */

const volatile __u32 targ_nr_dirs = 0;
const volatile __u64 targ_dir_inodes[BELOW_MAX] = {};
const volatile __u32 targ_dir_mount_devs[BELOW_MAX] = {};
const volatile __u32 targ_dir_devs[BELOW_MAX] = {};

/*
 * Returns the index of the directory with the inode at this address, otherwise BELOW_NONE. It is
 * a global function, so that the verifier checks it once, and not for each level of the path.
 */
__noinline int below_index(__u64 address)
{
	struct inode *inode = (void *)address;
	__u64 number = BPF_CORE_READ(inode, i_ino);
	__u32 mount_dev = BPF_CORE_READ(inode, i_sb, s_dev);
	/*
	 * Not in the loop: the compiler would move the offset in a type that a kernel may not have in
	 * front of the loop, and of the check that the type exists.
	 */
	__u32 subvolume = inode_subvolume(inode);

	for (int i = 0; i < BELOW_MAX; i++) {
		if (i >= targ_nr_dirs)
			break;
		if (number == targ_dir_inodes[i] && mount_dev == targ_dir_mount_devs[i] &&
		    (!subvolume || subvolume == targ_dir_devs[i]))
			return i;
	}
	return BELOW_NONE;
}

/*
 * below_find returns the index of the innermost directory that the file is below, otherwise
 * BELOW_NONE or BELOW_TOO_DEEP. It walks up to the root of the file system, starting at the parent.
 * Subvolumes of btrfs are directories on this path, and can have the same inode number as a
 * directory that is searched for.
 */
static __always_inline int below_find(struct dentry *dentry)
{
	struct dentry *parent;
	int index;

	for (int i = 0; i < BELOW_DEPTH_MAX; i++) {
		parent = BPF_CORE_READ(dentry, d_parent);
		index = below_index((__u64)BPF_CORE_READ(parent, d_inode));
		if (index >= 0 || parent == dentry)
			return index;
		dentry = parent;
	}
	return BELOW_TOO_DEEP;
}

#endif
