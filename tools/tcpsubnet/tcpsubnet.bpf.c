// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "sock.bpf.h"
#include "task.bpf.h"

/* User space sums the addresses of a subnet. */
struct table_key {
	struct in6_addr raddr;
};

struct table_value {
	__u64 tx_bytes;
};

#include "table.bpf.h"
#include "tcpbytes.bpf.h"

static __always_inline void count(const struct sock *sk, __s32 bytes, const bool is_send)
{
	struct sock_ends ends = {};
	struct table_key key = {};
	struct table_value *value;

	if (!is_send || bytes <= 0 || !task_current_wanted())
		return;
	sock_ends_read(&ends, sock_tcp((struct sock *)sk) ?: sk);
	if (!ends_wanted(&ends))
		return;
	key.raddr = ends.raddr;
	value = table_find(&key);
	if (value)
		table_add(value, tx_bytes, bytes);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
