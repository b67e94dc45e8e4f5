/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __BIOFILE_BPF_H
#define __BIOFILE_BPF_H

#include "biodata.bpf.h"
#include "block.bpf.h"
#include "dirtier.bpf.h"
#include "inode.bpf.h"
#include "path.bpf.h"
#include "task.bpf.h"

/*
 * The file that a request reads or writes, and the task that the data is from. A tool includes this
 * header before rq.bpf.h and has a struct io_file in struct io_owner. All of it is dead code unless
 * want_file is set.
 *
 * The file is read when the request is issued: then all merges into it are done.
 */

/* Set if a column needs the file or the owner. */
const volatile bool want_file = false;

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

#endif
