/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BIOFILE_BPF_H
#define __BIOFILE_BPF_H

#include "block.bpf.h"
#include "compat.bpf.h"
#include "inode.bpf.h"
#include "map.bpf.h"
#include "path.bpf.h"
#include "task.bpf.h"

/*
 * The file that a request reads or writes, and the task that the data is from. A tool includes this
 * header before rq.bpf.h and has a struct io_file in struct io_owner. All of it is dead code unless
 * want_file is set.
 *
 * The file is read when the request is issued: then all merges into it are done. A bio of the page
 * cache refers to the file by its pages, one of direct I/O by its completion: the file system's
 * private data has the open file or the inode. Pages of direct I/O say nothing, because they can
 * themselves be mapped from another file.
 */

/* Set if a column needs the file or the owner. */
const volatile bool want_file = false;

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

/* A task that the data is from. */
struct dirtier {
	__u64 cgroup_id;
	__u32 pid;
	__u32 tid;
	char comm[TASK_COMM_LEN];
};

struct io_file {
	__u64 inode; /* address */
	__u64 ino;
	struct dirtier owner; /* if owner_known */
	struct dirtier submitter;
	__u32 dev; /* inode_dev() */
	__u32 mount_dev; /* of the file system, as in mountinfo */
	__u32 submitter_flags; /* of the task */
	__u8 data; /* enum io_data */
	bool owner_known;
	bool is_journal; /* submitted by the journal's thread */
	__u8 pad;
};

#define BIOFILE_COUNTERS \
	__u64 dirtiers_evicted; /* files whose dirtying task was forgotten, because others followed */ \
	__u64 files_unread; /* requests with more bios than are read */

/* The identity of a file. A subvolume of btrfs is a device of its own. */
struct dirtier_key {
	__u64 ino;
	__u64 instance; /* inode_instance() */
	__u32 dev;
	__u32 pad;
};

/*
 * The task that made data of a file dirty most recently. User space sets the size if a column needs
 * the map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct dirtier_key);
	__type(value, struct dirtier);
} dirtiers SEC(".maps") USER_SPACE;

__u64 dirtiers_added; /* keys */
__u64 dirtiers_kept; /* keys at the end */

static __always_inline void dirtier_key_read(struct dirtier_key *key, const struct inode *inode)
{
	key->ino = BPF_CORE_READ(inode, i_ino);
	key->instance = inode_instance(inode);
	key->dev = inode_dev(inode);
}

#define S_IFMT 00170000
#define S_IFDIR 0040000
#define S_IFBLK 0060000
#define S_IFREG 0100000
#define S_IFLNK 0120000

static __always_inline __u32 inode_type(const struct inode *inode)
{
	return BPF_CORE_READ(inode, i_mode) & S_IFMT;
}

/* Until 6.18 a number, in 6.18 an enum, later a structure. */
struct inode___number {
	unsigned int i_state;
} __attribute__((preserve_access_index));

enum inode_state_flags_t {
	INODE_STATE_ANY,
};

struct inode___enum {
	enum inode_state_flags_t i_state;
} __attribute__((preserve_access_index));

struct inode___struct {
	struct {
		__u32 __state;
	} i_state;
} __attribute__((preserve_access_index));

static __always_inline __u32 inode_state_offset(void)
{
	if (bpf_core_field_exists(struct inode___number, i_state))
		return bpf_core_field_offset(struct inode___number, i_state);
	if (bpf_core_field_exists(struct inode___enum, i_state))
		return bpf_core_field_offset(struct inode___enum, i_state);
	return bpf_core_field_offset(struct inode___struct, i_state);
}

/* The flag I_SYNC of an inode that is being written back. Its number changed in 6.12. */
static __always_inline bool inode_is_synced(const struct inode *inode)
{
	__u32 bit = 7, state = 0;

	if (bpf_core_enum_value_exists(enum inode_state_bits, __I_SYNC))
		bit = bpf_core_enum_value(enum inode_state_bits, __I_SYNC);
	bpf_probe_read_kernel(&state, sizeof(state), (void *)inode + inode_state_offset());
	return state >> bit & 1;
}

/*
 * A page or folio of a file became dirty. A thread that writes back the file and cannot write a page
 * makes it dirty again: it is not the one that changed the data.
 */
static __always_inline int handle_dirty(struct address_space *mapping)
{
	struct task_struct *task = task_current();
	struct dirtier_key key = {};
	struct dirtier now = {}, *known;
	struct inode *inode;

	if (!mapping)
		return 0;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode || inode_type(inode) != S_IFREG)
		return 0;
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD && inode_is_synced(inode))
		return 0;
	dirtier_key_read(&key, inode);
	now.pid = BPF_CORE_READ(task, tgid);
	now.tid = BPF_CORE_READ(task, pid);
	now.cgroup_id = task_cgroup_id(task);
	known = bpf_map_lookup_elem(&dirtiers, &key);
	if (known && known->tid == now.tid && known->cgroup_id == now.cgroup_id)
		return 0;
	BPF_CORE_READ_STR_INTO(&now.comm, task, comm);
	if (!bpf_map_update_elem(&dirtiers, &key, &now, BPF_NOEXIST))
		__sync_fetch_and_add(&dirtiers_added, 1);
	else
		bpf_map_update_elem(&dirtiers, &key, &now, BPF_ANY);
	return 0;
}

/* Folios from 5.18 on (203a31516616), pages before. */
SEC("tp_btf/writeback_dirty_folio")
int dirty__btf(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

SEC("raw_tp/writeback_dirty_folio")
int dirty__raw(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

SEC("tp_btf/writeback_dirty_page")
int dirty__oldbtf(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

SEC("raw_tp/writeback_dirty_page")
int dirty__oldraw(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_dirty((void *)ctx[1]));
}

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

/* The journal's threads of ext4 and ocfs2 are "jbd2/DISK-8". */
static __always_inline bool task_is_journal(struct task_struct *task, __u32 flags)
{
	char comm[8] = {};

	if (!(flags & PF_KTHREAD))
		return false;
	bpf_probe_read_kernel(comm, 5, &task->comm);
	return comm[0] == 'j' && comm[1] == 'b' && comm[2] == 'd' && comm[3] == '2' &&
	       comm[4] == '/';
}

/* For io_owner_read(). */
static __always_inline void io_file_begin(struct io_file *f, struct task_struct *task,
					  __u64 cgroup_id)
{
	f->data = IO_DATA_NONE;
	f->submitter.cgroup_id = cgroup_id;
	f->submitter.pid = BPF_CORE_READ(task, tgid);
	f->submitter.tid = BPF_CORE_READ(task, pid);
	BPF_CORE_READ_STR_INTO(&f->submitter.comm, task, comm);
	f->submitter_flags = BPF_CORE_READ(task, flags);
	f->is_journal = task_is_journal(task, f->submitter_flags);
}

#define PF_WQ_WORKER 0x00000020

static __always_inline struct dirtier *dirtier_of(__u64 inode)
{
	struct dirtier_key key = {};

	dirtier_key_read(&key, (void *)inode);
	return bpf_map_lookup_elem(&dirtiers, &key);
}

static __always_inline void io_file_owner(struct io_file *f, __u64 what, bool is_write)
{
	bool direct = what & BIO_DIRECT;
	struct dirtier *dirtier;

	if (!is_write || direct) {
		/* Workers of btrfs submit direct I/O of others. */
		if (direct && f->submitter_flags & PF_WQ_WORKER)
			return;
		f->owner = f->submitter;
		f->owner_known = true;
		return;
	}
	dirtier = dirtier_of(BIO_INODE(what));
	if (!dirtier)
		return;
	f->owner = *dirtier;
	f->owner_known = true;
}

/* Whether a task is the last one that made data of the file dirty. Global, as bio_read(). */
__noinline int dirtier_is(__u64 inode, __u32 pid, __u32 tid, __u64 cgroup_id)
{
	struct dirtier *dirtier = dirtier_of(inode);

	return dirtier && dirtier->pid == pid && dirtier->tid == tid &&
	       dirtier->cgroup_id == cgroup_id;
}

/* Several files can have one owner. */
static __always_inline bool io_file_has_owner(struct io_file *f, __u64 what, bool is_write)
{
	if (!f->owner_known || !BIO_IS_FILE(what) || what & BIO_DIRECT)
		return false;
	return !is_write ||
	       dirtier_is(BIO_INODE(what), f->owner.pid, f->owner.tid, f->owner.cgroup_id);
}

/*
 * The verifier of old kernels takes longer than in proportion to this number: with 320, a run of
 * biosnoop took 116 s in an emulated machine with kernel 5.10.
 */
#define IO_BIOS_MAX 64

/* Reads what the first bio transfers, and whether the others do the same. */
static __noinline int io_file_read(struct io_file *f, struct bio *bio, bool is_write)
{
	__u64 first, what;

	if (!f || !bio)
		return 0;
	first = bio_read((__u64)bio, f->is_journal);
	f->data = BIO_IS_FILE(first) ? IO_DATA_FILE : first;
	f->inode = BIO_INODE(first);
	if (BIO_IS_FILE(first))
		io_file_owner(f, first, is_write);
	for (int i = 1; i <= IO_BIOS_MAX; i++) {
		bio = BPF_CORE_READ(bio, bi_next);
		if (!bio)
			return 0;
		what = bio_read((__u64)bio, f->is_journal);
		if (what == first && f->data != IO_DATA_SEVERAL)
			continue;
		f->data = IO_DATA_SEVERAL;
		f->owner_known = io_file_has_owner(f, what, is_write);
		if (!f->owner_known)
			return 0;
	}
	f->data = IO_DATA_UNKNOWN;
	f->owner_known = false;
	return 1;
}

static __always_inline bool block_op_has_data(__u32 cmd_flags)
{
	enum block_op op = block_op(cmd_flags);

	return op == BLOCK_OP_READ || op == BLOCK_OP_WRITE || op == BLOCK_OP_ZONE_APPEND;
}

/* Called when the request is issued. Returns whether the request has too many bios. */
static __always_inline bool io_file_issue(struct io_file *f, struct request *rq)
{
	__u32 cmd_flags = BPF_CORE_READ(rq, cmd_flags);
	struct inode *inode;

	f->data = IO_DATA_NONE;
	f->owner_known = false;
	if (!block_op_has_data(cmd_flags))
		return false;
	if (io_file_read(f, BPF_CORE_READ(rq, bio), cmd_flags & 1))
		return true;
	if (f->data != IO_DATA_FILE)
		return false;
	inode = (void *)f->inode;
	f->ino = BPF_CORE_READ(inode, i_ino);
	f->dev = inode_dev(inode);
	f->mount_dev = BPF_CORE_READ(inode, i_sb, s_dev);
	return false;
}

/* Until 6.19 the list is in the union d_u. */
struct dentry___u {
	union {
		struct hlist_node d_alias;
	} d_u;
} __attribute__((preserve_access_index));

struct dentry___alias {
	struct hlist_node d_alias;
} __attribute__((preserve_access_index));

/* A directory entry of the inode, NULL if the kernel has none in memory. */
static __always_inline struct dentry *inode_alias(struct inode *inode)
{
	void *node = BPF_CORE_READ(inode, i_dentry.first);

	if (!node)
		return NULL;
	if (bpf_core_field_exists(struct dentry___u, d_u))
		return node - bpf_core_field_offset(struct dentry___u, d_u.d_alias);
	return node - bpf_core_field_offset(struct dentry___alias, d_alias);
}

/*
 * A directory entry of the file, at completion. The inode exists as long as a bio of the request is
 * not completed. If parts were completed before, it may be gone: then the address belongs to something
 * else.
 */
static __always_inline struct dentry *io_file_dentry(struct io_file *f)
{
	struct inode *inode = (void *)f->inode;

	if (BPF_CORE_READ(inode, i_ino) != f->ino || BPF_CORE_READ(inode, i_sb, s_dev) != f->mount_dev)
		return NULL;
	return inode_alias(inode);
}

/* RQ_ISSUED of rq.bpf.h. */
#define BIOFILE_ISSUED(io, rq)                                             \
	do {                                                               \
		if (want_file && !(io)->unwanted &&                        \
		    io_file_issue(&(io)->owner.file, rq))                  \
			counter_add(files_unread);                         \
	} while (0)

/* The program that counts the keys that the map has lost, at the end. It follows rq.bpf.h. */
#define SETTLE_DIRTIERS                                                                  \
	SEC("iter/bpf_map_elem")                                                         \
	int settle_dirtiers(struct bpf_iter__bpf_map_elem *ctx)                          \
	{                                                                                \
		if (ctx->key)                                                            \
			__sync_fetch_and_add(&dirtiers_kept, 1);                         \
		else if (dirtiers_added > dirtiers_kept)                                 \
			counter_add_n(dirtiers_evicted, dirtiers_added - dirtiers_kept); \
		return 0;                                                                \
	}

#endif
