// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "fsop.bpf.h"
#include "task.bpf.h"

/* Group histograms by these, in addition to the operation. */
const volatile bool by_type = false;
const volatile bool by_pid = false;
const volatile bool by_cgroup = false;

struct hist_key {
	__u64 cgroup_id;
	char type[FS_NAME_LEN];
	char comm[TASK_COMM_LEN];
	__u32 pid;
	__u32 op; /* enum fs_op */
};

#include "histtask.bpf.h"

static __always_inline void fs_op_done(void *ctx, const struct fs_op_end *end)
{
	struct hist_key key = { .op = end->op };
	struct task_struct *task = task_current();
	struct inode *inode;

	if (by_type) {
		inode = fs_op_inode(end);
		bpf_probe_read_kernel_str(key.type, sizeof(key.type),
					  BPF_CORE_READ(inode, i_sb, s_type, name));
	}
	if (by_pid) {
		key.pid = bpf_get_current_pid_tgid() >> 32;
		BPF_CORE_READ_STR_INTO(&key.comm, task, group_leader, comm);
	}
	if (by_cgroup)
		key.cgroup_id = task_current_cgroup_id();
	hist_record_task(&key, end->ns, task);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
