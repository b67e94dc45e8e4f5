/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __INODE_BPF_H
#define __INODE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Identifies files beyond the inode number, which is unique neither on a device nor over time. */

/* include/uapi/linux/magic.h */
#define BTRFS_SUPER_MAGIC 0x9123683E
#define FUSE_SUPER_MAGIC 0x65735546
#define OVERLAYFS_SUPER_MAGIC 0x794c7630

/* Types of inodes. */
#define S_IFMT 00170000
#define S_IFSOCK 0140000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFBLK 0060000
#define S_IFREG 0100000
#define S_IFLNK 0120000

static __always_inline __u32 inode_type(const struct inode *inode)
{
	return BPF_CORE_READ(inode, i_mode) & S_IFMT;
}

/* Types of file systems that can be modules. Their BTF is available from 5.11 on (36e68442d1af). */
struct btrfs_root {
	dev_t anon_dev;
} __attribute__((preserve_access_index));

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
} __attribute__((preserve_access_index));

struct ovl_inode {
	struct inode vfs_inode;
	struct dentry *__upperdentry; /* of the file in the upper layer, if it exists there */
} __attribute__((preserve_access_index));

/*
 * Each subvolume of btrfs has its own inode numbers, and its own device in stat(2). inode_subvolume
 * returns that device, or 0 for other file systems and if the kernel has no BTF of btrfs.
 */
static __always_inline __u32 inode_subvolume(const struct inode *inode)
{
	const struct btrfs_inode *own;

	if (!bpf_core_type_exists(struct btrfs_inode) ||
	    BPF_CORE_READ(inode, i_sb, s_magic) != BTRFS_SUPER_MAGIC)
		return 0;
	own = (void *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);
	return BPF_CORE_READ(own, root, anon_dev);
}

/* The device as in stat(2), MAJOR << 20 | MINOR; on overlayfs that of the overlayfs itself. */
static __always_inline __u32 inode_dev(const struct inode *inode)
{
	__u32 dev = inode_subvolume(inode);

	return dev ? dev : BPF_CORE_READ(inode, i_sb, s_dev);
}

/*
 * Reports whether the inode is on the device of a mount (mount_dev), and has the device dev in
 * stat(2), which differs from it only within a subvolume.
 */
static __always_inline bool inode_is_on(const struct inode *inode, __u32 mount_dev, __u32 dev)
{
	__u32 subvolume = inode_subvolume(inode);

	return BPF_CORE_READ(inode, i_sb, s_dev) == mount_dev && (!subvolume || subvolume == dev);
}

/*
 * A file that was created in the upper layer has the generation of its inode there. A file that was
 * copied up has the inode number of the lower layer, and no generation.
 */
static __always_inline __u32 overlay_generation(const struct inode *inode)
{
	const struct ovl_inode *own;
	struct inode *upper;

	if (!bpf_core_type_exists(struct ovl_inode))
		return 0;
	own = (void *)inode - bpf_core_field_offset(struct ovl_inode, vfs_inode);
	upper = BPF_CORE_READ(own, __upperdentry, d_inode);
	if (!upper || BPF_CORE_READ(upper, i_ino) != BPF_CORE_READ(inode, i_ino))
		return 0;
	return BPF_CORE_READ(upper, i_generation);
}

/*
 * File systems reuse the inode number of a deleted file with another generation. inode_generation
 * returns the generation, as FS_IOC_GETVERSION does, or 0 if there is no reliable one: in FUSE it
 * depends on the server.
 */
static __always_inline __u32 inode_generation(const struct inode *inode)
{
	switch (BPF_CORE_READ(inode, i_sb, s_magic)) {
	case FUSE_SUPER_MAGIC:
		return 0;
	case OVERLAYFS_SUPER_MAGIC:
		return overlay_generation(inode);
	case BTRFS_SUPER_MAGIC: /* a file and its snapshot have the same one */
		if (!inode_subvolume(inode))
			return 0;
	}
	return BPF_CORE_READ(inode, i_generation);
}

/*
 * Distinguishes files with the same inode number and device: the generation or, without one, the
 * address of the inode, which is unique while the inode is in memory.
 */
static __always_inline __u64 inode_instance(const struct inode *inode)
{
	__u32 generation = inode_generation(inode);

	return generation ? generation : (__u64)inode;
}

#endif
