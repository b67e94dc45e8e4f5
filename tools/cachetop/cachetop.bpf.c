// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

struct table_key {
	__u64 cgroup_id;
	__u32 pid;
	__u32 uid;
	char comm[TASK_COMM_LEN];
};

struct table_value {
	__u64 accessed;
	__u64 added;
	__u64 dirtied;
	__u64 dirties;
};

#include "table.bpf.h"

static __always_inline struct table_value *cache_counts(void)
{
	struct table_key key = {
		.cgroup_id = task_current_cgroup_id(),
		.pid = bpf_get_current_pid_tgid() >> 32,
		.uid = bpf_get_current_uid_gid(),
	};

	bpf_get_current_comm(key.comm, sizeof(key.comm));
	return table_find(&key);
}

#define CACHE_COUNT(member)                                    \
	do {                                                   \
		struct table_value *__v = cache_counts();      \
		if (__v)                                       \
			table_add(__v, member, 1);             \
	} while (0)

#include "pagecache.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
