/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SOCKCALL_BPF_H
#define __SOCKCALL_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "task.bpf.h"
#include "syscall.bpf.h"
#include "path.bpf.h"
#include "sock.bpf.h"

/*
 * sock_call_arg returns argument n of a system call for sockets. The arguments of socketcall are in
 * the memory of the task, with 32 bits each.
 */
static __always_inline __u64 sock_call_arg(struct pt_regs *regs, __s32 nr, int n, bool compat)
{
	__u32 arg = -1;
	__u64 args;

	if (!compat || nr != NR_compat_socketcall)
		return syscall_arg(regs, n, compat);
	args = syscall_arg(regs, 1, true);
	bpf_probe_read_user(&arg, sizeof(arg), (void *)(args + n * sizeof(arg)));
	return arg;
}

/* The TCP socket that a descriptor of the current task refers to, or NULL. */
static __always_inline struct sock *task_tcp_sock(__u32 fd)
{
	struct file *file = task_file(task_current(), fd);

	return file ? file_tcp_sock(file) : NULL;
}

#endif
