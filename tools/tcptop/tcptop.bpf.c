// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "sock.bpf.h"
#include "task.bpf.h"

struct table_key {
	struct sock_ends ends;
	__u64 cgroup_id;
	__u32 pid;
	__u32 uid;
	char comm[TASK_COMM_LEN];
};

struct table_value {
	__u64 tx_bytes;
	__u64 rx_bytes;
};

#include "table.bpf.h"
#include "tcpbytes.bpf.h"

static __always_inline struct table_value *find(const struct sock *sk)
{
	struct table_key key = {};

	sock_ends_read(&key.ends, sk);
	if (!ends_wanted(&key.ends))
		return NULL;
	key.cgroup_id = task_current_cgroup_id();
	key.pid = bpf_get_current_pid_tgid() >> 32;
	key.uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	return table_find(&key);
}

static __always_inline void count(const struct sock *sk, __s32 bytes, const bool is_send)
{
	struct table_value *value;

	if (bytes <= 0 || !task_current_wanted())
		return;
	value = find(sock_tcp((struct sock *)sk) ?: sk);
	if (!value)
		return;
	if (is_send)
		table_add(value, tx_bytes, bytes);
	else
		table_add(value, rx_bytes, bytes);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
