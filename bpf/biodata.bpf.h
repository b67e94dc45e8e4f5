/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BIODATA_BPF_H
#define __BIODATA_BPF_H

#include "block.bpf.h"
#include "inode.bpf.h"

/*
 * What a bio transfers. A bio of the page cache refers to the file by its pages, one of direct I/O by
 * its completion: the file system's private data has the open file or the inode. Pages of direct I/O
 * say nothing, because they can themselves be mapped from another file.
 */

/* Addresses of kernel functions that complete bios (struct bio.bi_end_io), or 0. */
const volatile __u64 targ_iomap_dio_bio_end_io = 0;
const volatile __u64 targ_bio_chain_endio = 0;
const volatile __u64 targ_btrfs_simple_end_io = 0;
const volatile __u64 targ_btrfs_orig_write_end_io = 0;
const volatile __u64 targ_xlog_bio_end_io = 0;
const volatile __u64 targ_blkdev_bio_end_io = 0;
const volatile __u64 targ_blkdev_bio_end_io_async = 0;
const volatile __u64 targ_blkdev_bio_end_io_simple = 0;
const volatile __u64 targ_dio_bio_end_io = 0;
const volatile __u64 targ_dio_bio_end_aio = 0;

enum io_data {
	IO_DATA_NONE, /* no data, as in a flush or discard */
	IO_DATA_UNKNOWN,
	IO_DATA_FILE,
	IO_DATA_METADATA,
	IO_DATA_JOURNAL,
	IO_DATA_DEVICE, /* of a block device, not of a file */
	IO_DATA_SEVERAL, /* several files, or a file and something else */
};

/* Keeps the type in the BTF of the object. */
const enum io_data *io_data_type __attribute__((unused));

/* Until 6.19 */
struct page___head {
	unsigned long compound_head;
} __attribute__((preserve_access_index));

/* From 7.0 on the member can be a mask instead, if the size of struct page is a power of two. */
struct page___info {
	unsigned long compound_info;
} __attribute__((preserve_access_index));

static __always_inline void *page_head(void *page)
{
	struct page___head *old = page;
	struct page___info *new = page;
	__u64 info = 0;

	if (bpf_core_field_exists(old->compound_head))
		info = BPF_CORE_READ(old, compound_head);
	else if (bpf_core_field_exists(new->compound_info))
		info = BPF_CORE_READ(new, compound_info);
	if (!(info & 1))
		return page;
	if (info >> 32 == 0xffffffff)
		return (void *)((__u64)page & info);
	return (void *)(info - 1);
}

/*
 * The page cache locks a page that it reads and has no data of, and marks a page that it writes.
 * Neither is so for a page that serves as the buffer of direct I/O.
 */
static __always_inline bool page_is_transferred(void *head, bool is_write)
{
	__u64 flags = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), head);
	if (is_write)
		return flags >> bpf_core_enum_value(enum pageflags, PG_writeback) & 1;
	return flags >> bpf_core_enum_value(enum pageflags, PG_locked) & 1 &&
	       !(flags >> bpf_core_enum_value(enum pageflags, PG_uptodate) & 1);
}

/* From 6.3 on; before, another type has the name. */
struct btrfs_bio {
	struct btrfs_inode *inode;
	struct bio bio;
} __attribute__((preserve_access_index));

/* Bits of page.mapping that say that it does not point to a struct address_space. */
#define PAGE_MAPPING_FLAGS 3

static __always_inline struct inode *bio_page_inode(struct bio *bio, void **head)
{
	__u32 idx = BPF_CORE_READ(bio, bi_iter.bi_idx);
	struct bio_vec *vec = BPF_CORE_READ(bio, bi_io_vec) + idx;
	struct page *page = BPF_CORE_READ(vec, bv_page);
	struct address_space *mapping;

	*head = page_head(page);
	page = *head;
	mapping = BPF_CORE_READ(page, mapping);
	if (!mapping || (__u64)mapping & PAGE_MAPPING_FLAGS)
		return NULL;
	return BPF_CORE_READ(mapping, host);
}

/*
 * What a bio transfers: enum io_data or, for IO_DATA_FILE, the address of the inode, which is a
 * multiple of 8, and BIO_DIRECT if it does not go through the page cache.
 */
#define BIO_DIRECT 1ULL
#define BIO_IS_FILE(what) ((what) > IO_DATA_SEVERAL)
#define BIO_INODE(what) ((what) & ~7ULL)

static __always_inline __u64 bio_file(struct inode *inode, bool direct)
{
	return (__u64)inode | (direct ? BIO_DIRECT : 0);
}

/* A bio that was split completes the rest of it (bio_chain). */
static __always_inline struct bio *bio_whole(struct bio *bio)
{
	for (int i = 0; i < 4; i++) {
		if (!targ_bio_chain_endio ||
		    (__u64)BPF_CORE_READ(bio, bi_end_io) != targ_bio_chain_endio)
			break;
		bio = BPF_CORE_READ(bio, bi_private);
	}
	return bio;
}

/* Direct I/O of most file systems: its state refers to the open file. */
static __always_inline struct inode *bio_iomap_inode(struct bio *whole)
{
	struct iomap_dio *dio = BPF_CORE_READ(whole, bi_private);

	return BPF_CORE_READ(dio, iocb, ki_filp, f_inode);
}

static __always_inline struct inode *bio_btrfs_inode(struct bio *whole)
{
	struct btrfs_bio *own = NULL;
	struct btrfs_inode *inode;

	if (!bpf_core_field_exists(own->inode) || !bpf_core_field_exists(own->bio))
		return NULL;
	own = (void *)whole - bpf_core_field_offset(struct btrfs_bio, bio);
	inode = BPF_CORE_READ(own, inode);
	if (!inode)
		return NULL;
	return (void *)inode + bpf_core_field_offset(struct btrfs_inode, vfs_inode);
}

static __always_inline bool is_end_io(__u64 end_io, __u64 targ)
{
	return targ && end_io == targ;
}

static __always_inline bool is_device_end_io(__u64 end_io)
{
	return is_end_io(end_io, targ_blkdev_bio_end_io) ||
	       is_end_io(end_io, targ_blkdev_bio_end_io_async) ||
	       is_end_io(end_io, targ_blkdev_bio_end_io_simple);
}

/* Direct I/O of file systems without iomap, whose file is not read. */
static __always_inline bool is_dio_end_io(__u64 end_io)
{
	return is_end_io(end_io, targ_dio_bio_end_io) || is_end_io(end_io, targ_dio_bio_end_aio);
}

static __always_inline __u64 bio_metadata(bool is_journal, bool is_meta, __u32 type)
{
	if (is_journal)
		return IO_DATA_JOURNAL;
	if (is_meta || type == S_IFDIR || type == S_IFLNK)
		return IO_DATA_METADATA;
	return type == S_IFBLK ? IO_DATA_DEVICE : IO_DATA_UNKNOWN;
}

/*
 * bio_read returns what a bio transfers. It is a global function with numbers as arguments, so that
 * the verifier checks it once, and not for each iteration of the loop over the bios.
 */
__noinline __u64 bio_read(__u64 address, __u64 is_journal)
{
	struct bio *bio = (void *)address, *whole = bio_whole(bio);
	__u32 opf = BPF_CORE_READ(bio, bi_opf), type;
	__u64 end_io = (__u64)BPF_CORE_READ(whole, bi_end_io);
	struct inode *inode, *own;
	void *head = NULL;

	if (is_end_io(end_io, targ_iomap_dio_bio_end_io)) {
		own = bio_iomap_inode(whole);
		return own && inode_type(own) == S_IFREG ? bio_file(own, true) : IO_DATA_UNKNOWN;
	}
	if (is_dio_end_io(end_io))
		return IO_DATA_UNKNOWN;
	if (is_device_end_io(end_io))
		return IO_DATA_DEVICE;
	if (is_end_io(end_io, targ_xlog_bio_end_io))
		return IO_DATA_JOURNAL;
	inode = bio_page_inode(bio, &head);
	type = inode ? inode_type(inode) : 0;
	if (block_flag(opf, META))
		return bio_metadata(is_journal, true, type);
	if (is_end_io(end_io, targ_btrfs_simple_end_io) ||
	    is_end_io(end_io, targ_btrfs_orig_write_end_io)) {
		own = bio_btrfs_inode(whole);
		if (own)
			return inode_type(own) == S_IFREG ? bio_file(own, own != inode) : IO_DATA_UNKNOWN;
	}
	if (type == S_IFREG && page_is_transferred(head, opf & 1))
		return bio_file(inode, false);
	return bio_metadata(is_journal, false, type);
}

#endif
