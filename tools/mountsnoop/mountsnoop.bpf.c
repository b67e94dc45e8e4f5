// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "began.bpf.h"
#include "callsetlatency.bpf.h"
#include "event.bpf.h"
#include "path.bpf.h"
#include "task.bpf.h"

#define MOUNT_ARGS 5
#define MOUNT_STRINGS 4

/* The kind of a call: a bit per argument that is a string, and these. */
#define MOUNT_ATTR (1 << MOUNT_ARGS) /* argument 3 is a struct mount_attr */
#define MOUNT_CALL (1 << (MOUNT_ARGS + 1)) /* set for all calls */

/* struct mount_attr is UAPI and missing in the BTF of older kernels, so it is defined here. */
struct attributes {
	__u64 set;
	__u64 cleared;
	__u64 propagation;
};

struct event {
	struct task_info task;
	__u64 latency_ns; /* CLOCK_MONOTONIC; 0 if the entry was not observed */
	__u64 args[MOUNT_ARGS];
	struct attributes attr;
	__s32 ret;
	__u32 nr;
	__u32 abi; /* enum syscall_abi */
	__u32 mntns; /* inode number */
	__u32 ppid;
	char parent_comm[TASK_COMM_LEN];
	__u32 lens[MOUNT_ARGS]; /* of strings including the NUL byte; 0 if there is none */
	char data[MOUNT_STRINGS * PATH_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

static __always_inline void read_task(struct event *e)
{
	struct task_struct *task = task_current();
	struct task_struct *parent = BPF_CORE_READ(task, real_parent);

	task_info_current(&e->task);
	e->mntns = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	e->ppid = BPF_CORE_READ(parent, tgid);
	BPF_CORE_READ_STR_INTO(&e->parent_comm, parent, comm);
}

/* Reads the arguments, and returns the number of bytes of the strings. */
static __always_inline __u32 read_args(struct event *e, struct pt_regs *regs,
				       const struct callset_call *call)
{
	__u32 at = 0;
	long len;

	for (int i = 0; i < MOUNT_ARGS; i++) {
		e->args[i] = syscall_arg(regs, i, call->compat);
		if (!(call->kind & 1 << i) || at > (MOUNT_STRINGS - 1) * PATH_MAX)
			continue;
		len = read_user_str(e->data + at, PATH_MAX, (const char *)e->args[i]);
		if (len <= 0 || len > PATH_MAX)
			continue;
		e->lens[i] = len;
		at += len;
		barrier_var(at);
	}
	if (call->kind & MOUNT_ATTR)
		bpf_probe_read_user(&e->attr, sizeof(e->attr), (void *)e->args[3]);
	return at;
}

static __always_inline int call_ended(void *ctx, struct pt_regs *regs,
				      const struct callset_call *call, long ret)
{
	__u32 zero = 0, len;
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);
	struct began b;

	if (!e)
		return 0;
	__builtin_memset(e, 0, offsetof(struct event, data));
	if (began_take(&b))
		e->latency_ns = bpf_ktime_get_ns() - b.ns;
	if (!task_current_wanted())
		return 0;
	read_task(e);
	e->ret = ret;
	e->nr = call->nr;
	e->abi = call->abi;
	len = read_args(e, regs, call);
	if (len <= sizeof(e->data))
		event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
	return 0;
}

static __always_inline void call_begun(struct pt_regs *regs, const struct callset_call *call)
{
	began_put(NULL);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
