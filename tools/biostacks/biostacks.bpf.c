// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "block.bpf.h"
#include "filekey.bpf.h"
#include "map.bpf.h"
#include "task.bpf.h"

/* The submitting task and its kernel stack. */
struct hist_key {
	__u64 stack;
	__u64 file; /* key of io_files, 0 without want_file */
	__u32 pid;
	__u32 dev;
	char comm[TASK_COMM_LEN];
};

#include "hist.bpf.h"
#include "stacks.bpf.h"

struct io_owner {
	__u64 start_ns;
	stack_id_t stack;
	__u32 pid;
	char comm[TASK_COMM_LEN];
	__u32 pad;
	struct io_file file; /* if want_file */
};

#define RQ_COUNTERS     \
	BIOFILE_COUNTERS \
	__u64 files_full; /* requests whose file does not fit in the map of files */
#define RQ_ISSUED(io, rq) BIOFILE_ISSUED(io, rq)

#include "rq.bpf.h"

struct file_entry {
	struct file_key key;
	char name[NAME_MAX + 1];
};

/* By io_files_id(). User space sets the size with want_file. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct file_entry);
} io_files SEC(".maps") USER_SPACE;

const struct file_entry file_entry_zero = {};

static __always_inline __u64 io_files_id(const struct file_key *key)
{
	const __u64 *words = (const void *)key;
	__u64 hash = 0;

	for (int i = 0; i < sizeof(*key) / sizeof(*words); i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	return hash ? hash : 1;
}

/*
 * The key of the file and the owner in io_files, 0 if that is full. Both are too large for the key of a
 * histogram.
 */
static __noinline __u64 io_files_add(struct io_file *f)
{
	struct file_entry *entry;
	struct file_key key = {};
	__u64 id;

	if (!f)
		return 0;
	file_key_read(&key, f);
	id = io_files_id(&key);
	entry = bpf_map_lookup_elem(&io_files, &id);
	if (!entry) {
		bpf_map_update_elem(&io_files, &id, &file_entry_zero, BPF_NOEXIST);
		entry = bpf_map_lookup_elem(&io_files, &id);
	}
	if (!entry) {
		counter_add(files_full);
		return 0;
	}
	entry->key = key;
	file_name_read(entry->name, f);
	return id;
}

static __always_inline void io_owner_read(void *ctx, struct io_owner *owner,
					  struct task_struct *task, struct cgroup *cgrp)
{
	owner->start_ns = bpf_ktime_get_ns();
	owner->stack = kernel_stack(ctx);
	owner->pid = BPF_CORE_READ(task, tgid);
	BPF_CORE_READ_STR_INTO(&owner->comm, task, comm);
	if (want_file)
		io_file_begin(&owner->file, task, BPF_CORE_READ(cgrp, kn, id));
}

static __always_inline void rq_report(void *ctx, struct io *io, struct request *rq, __u32 error,
				      __u64 now_ns, const bool direct)
{
	struct hist_key key = { .stack = io->owner.stack, .pid = io->owner.pid };

	if (now_ns < io->owner.start_ns) {
		counter_add(negative);
		return;
	}
	key.dev = rq_dev(rq, direct);
	__builtin_memcpy(key.comm, io->owner.comm, sizeof(key.comm));
	if (want_file)
		key.file = io_files_add(&io->owner.file);
	hist_record(&key, now_ns - io->owner.start_ns);
}

SETTLE_DIRTIERS

/* block_io_start exists from 6.5 on (5a80bd075f3b). */
HOOK(submit, block_io_start, handle_submit(ctx, (void *)ctx[0], direct))
PROGRAMS(submit__oldbtf, submit__oldraw, block_rq_insert,
	 handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(insert, block_rq_insert, handle_insert(ctx, block_arg(ctx, block_rq_insert), direct))
HOOK(issue, block_rq_issue, handle_issue(ctx, block_arg(ctx, block_rq_issue), direct))
HOOK(requeue, block_rq_requeue, handle_requeue(block_arg(ctx, block_rq_requeue), direct))
HOOK(merge, block_rq_merge, handle_merge(block_arg(ctx, block_rq_merge), direct))
HOOK(complete, block_rq_complete,
     handle_complete(ctx, (void *)ctx[0], ctx[1], ctx[2], bpf_ktime_get_ns(), direct))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
