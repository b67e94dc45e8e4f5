/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __INODE_BPF_H
#define __INODE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Which file an inode is, beyond its number: these are unique neither on a device nor over time. */

/* include/uapi/linux/magic.h */
#define BTRFS_SUPER_MAGIC 0x9123683E
#define FUSE_SUPER_MAGIC 0x65735546
#define OVERLAYFS_SUPER_MAGIC 0x794c7630

/* Types of file systems that may be modules; their BTF is there from 5.11 on (36e68442d1af). */
struct btrfs_root {
	dev_t anon_dev;
} __attribute__((preserve_access_index));

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
} __attribute__((preserve_access_index));

struct ovl_inode {
	struct inode vfs_inode;
	struct dentry *__upperdentry; /* of the file in the upper layer, once it is there */
} __attribute__((preserve_access_index));

/*
 * Subvolumes of btrfs have inode numbers of their own, and devices by which stat(2) shows that.
 * inode_subvolume returns the device, or 0 on other file systems and where the kernel does not
 * describe the types of btrfs.
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

/* The device that stat(2) shows, MAJOR << 20 | MINOR; on overlayfs that of the file system. */
static __always_inline __u32 inode_dev(const struct inode *inode)
{
	__u32 dev = inode_subvolume(inode);

	return dev ? dev : BPF_CORE_READ(inode, i_sb, s_dev);
}

/*
 * Tells whether the inode is on the device that a mount has (mount_dev), and there on the device
 * that stat(2) shows (dev), which is another one only within a subvolume.
 */
static __always_inline bool inode_on(const struct inode *inode, __u32 mount_dev, __u32 dev)
{
	__u32 subvolume = inode_subvolume(inode);

	return BPF_CORE_READ(inode, i_sb, s_dev) == mount_dev && (!subvolume || subvolume == dev);
}

/*
 * A file that is in the upper layer from its beginning has the generation that it has there.
 * One that was copied up has the number of the lower layer's, and no generation.
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
 * A file system gives the number of a file that is gone to another one, which then has another
 * generation. inode_generation returns it, as FS_IOC_GETVERSION does, or 0 where there is none
 * that could be relied upon: of FUSE it is up to a server.
 */
static __always_inline __u32 inode_generation(const struct inode *inode)
{
	switch (BPF_CORE_READ(inode, i_sb, s_magic)) {
	case FUSE_SUPER_MAGIC:
		return 0;
	case OVERLAYFS_SUPER_MAGIC:
		return overlay_generation(inode);
	case BTRFS_SUPER_MAGIC: /* it is that of the snapshot's file too */
		if (!inode_subvolume(inode))
			return 0;
	}
	return BPF_CORE_READ(inode, i_generation);
}

/*
 * What sets files apart that have the number and the device in common: the generation, or where
 * there is none the address of the inode, which no other one has as long as this one is in memory.
 */
static __always_inline __u64 inode_instance(const struct inode *inode)
{
	__u32 generation = inode_generation(inode);

	return generation ? generation : (__u64)inode;
}

#endif
