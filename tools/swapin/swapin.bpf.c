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
	char comm[TASK_COMM_LEN]; /* of the process */
	__u32 pad;
};

struct table_value {
	__u64 count;
};

#include "table.bpf.h"

static __always_inline int handle_read(void)
{
	struct task_struct *task = task_current();
	struct table_key key = {};
	struct table_value *value;

	if (!task_current_wanted())
		return 0;
	key.pid = bpf_get_current_pid_tgid() >> 32;
	key.cgroup_id = task_current_cgroup_id();
	BPF_CORE_READ_STR_INTO(&key.comm, task, group_leader, comm);
	value = table_find(&key);
	if (value)
		table_add(value, count, 1);
	return 0;
}

#define PROGRAM(kind, section)  \
	SEC(section)            \
	int read__##kind(void *ctx) \
	{                       \
		return handle_read(); \
	}

/* Folios from 6.9 on (c9bdf768dd93), pages before. */
PROGRAM(fentry, "fentry/swap_read_folio")
PROGRAM(kprobe, "kprobe/swap_read_folio")
PROGRAM(oldfentry, "fentry/swap_readpage")
PROGRAM(oldkprobe, "kprobe/swap_readpage")

char LICENSE[] SEC("license") = "Dual BSD/GPL";
