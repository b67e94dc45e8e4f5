// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define BELOW_MAX 32
#include "below.bpf.h"

struct table_key {
	__u32 dir; /* index of the directory */
};

struct table_value {
	__u64 reads;
	__u64 writes;
	__u64 read_bytes;
	__u64 write_bytes;
};

#include "table.bpf.h"

#define RW_COUNTERS                                                                 \
	__u64 elsewhere; /* calls on regular files below none of the directories */ \
	__u64 too_deep; /* calls on regular files below none of their nearest 64 directories */
#include "rwexit.bpf.h"

static __always_inline void rw_done(struct file *file, bool is_write, __u64 bytes)
{
	struct table_value *value;
	struct table_key key;
	int dir;

	if (inode_type(BPF_CORE_READ(file, f_inode)) != S_IFREG)
		return;
	dir = below_find(BPF_CORE_READ(file, f_path.dentry));
	if (dir == BELOW_TOO_DEEP)
		counter_add(too_deep);
	else if (dir < 0)
		counter_add(elsewhere);
	if (dir < 0)
		return;
	key.dir = dir;
	value = table_find(&key);
	if (!value)
		return;
	if (is_write) {
		table_add(value, writes, 1);
		table_add(value, write_bytes, bytes);
	} else {
		table_add(value, reads, 1);
		table_add(value, read_bytes, bytes);
	}
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
