// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "map.bpf.h"
#include "stack.bpf.h"
#include "stackwalk.bpf.h"
#include "task.bpf.h"

#define CAP_OPT_NOAUDIT 2 /* include/linux/security.h */
#define CAP_OPT_INSETID 4

const volatile bool want_kernel_stack = false;
const volatile bool want_user_stack = false;
/* Only the first check of a capability by a process, or by a cgroup. */
const volatile bool targ_by_process = false;
const volatile bool targ_by_cgroup = false;
/* Only checks that failed. */
const volatile bool targ_denied = false;

/* A check whose options are unknown has this bit. */
#define OPTS_UNKNOWN 0x80000000

struct check {
	const struct user_namespace *ns;
	__s32 cap;
	__u32 opts;
};

struct event {
	struct task_info task;
	__u64 start_ns; /* of the process: distinguishes it from others with the same PID */
	__s32 cap;
	__s32 ret;
	__u32 userns;
	__u32 kernel_len;
	__u32 user_len;
	__u8 audit;
	__u8 insetid;
	__u8 has_opts;
	__u8 pad;
	char stacks[STACK_BYTES + STACK_MAX_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

/*
 * Checks that were shown. If the oldest are removed, they are shown again. A check with another
 * result, or in another user namespace, is another one.
 */
struct seen {
	__u64 by; /* process or cgroup */
	__u64 start_ns; /* of the process */
	__s32 cap;
	__s32 ret;
	__u32 userns;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct seen);
	__type(value, __u8);
} seen SEC(".maps");

/* Returns false if the key is new, or if all checks are wanted. */
static __always_inline bool is_repeated(const struct seen *key)
{
	__u8 one = 1;

	return key->by && map_has_key(bpf_map_update_elem(&seen, key, &one, BPF_NOEXIST));
}

static __always_inline void fill_key(struct seen *key, const struct event *e)
{
	if (targ_by_process) {
		key->by = e->task.pid;
		key->start_ns = e->start_ns;
	} else if (targ_by_cgroup) {
		key->by = e->task.cgroup_id;
	}
	key->cap = e->cap;
	key->ret = e->ret;
	key->userns = e->userns;
}

static __always_inline long send(void *ctx, struct event *e)
{
	__u32 size = 0;

	if (want_kernel_stack)
		size = e->kernel_len = stack_read(ctx, e->stacks);
	if (want_user_stack)
		size += e->user_len = user_stack_read(ctx, e->stacks + size, 0);
	if (size > sizeof(e->stacks))
		return 0;
	return event_send(ctx, e, offsetof(struct event, stacks) + size, e->task.time_ns);
}

static __always_inline int handle_check(void *ctx, const struct check *check, int ret)
{
	const struct user_namespace *ns = check->ns; /* struct check is not of the kernel */
	struct seen key = {};
	__u32 zero = 0;
	struct event *e;

	if ((targ_denied && !ret) || !task_current_wanted())
		return 0;
	e = bpf_map_lookup_elem(&scratch, &zero);
	if (!e)
		return 0;
	__builtin_memset(e, 0, offsetof(struct event, stacks));
	task_info_current(&e->task);
	e->start_ns = BPF_CORE_READ(task_current(), group_leader, start_boottime);
	e->cap = check->cap;
	e->ret = ret;
	e->userns = BPF_CORE_READ(ns, ns.inum);
	fill_key(&key, e);
	if (is_repeated(&key))
		return 0;
	e->has_opts = check->opts != OPTS_UNKNOWN;
	e->audit = !(check->opts & CAP_OPT_NOAUDIT);
	e->insetid = !!(check->opts & CAP_OPT_INSETID);
	/* A check that is lost is shown the next time. */
	if (send(ctx, e) && key.by)
		bpf_map_delete_elem(&seen, &key);
	return 0;
}

/* The function has the options of the check, the tracepoint (6.14) does not. */
SEC("fexit/cap_capable")
int BPF_PROG(check__fentry, const struct cred *cred, struct user_namespace *ns, int cap,
	     unsigned int opts, int ret)
{
	struct check check = { .ns = ns, .cap = cap, .opts = opts };

	return NOT_PREEMPTED(handle_check(ctx, &check, ret));
}

SEC("tp_btf/cap_capable")
int BPF_PROG(check__btf, const struct cred *cred, struct user_namespace *ns,
	     const struct user_namespace *capable_ns, int cap, int ret)
{
	struct check check = { .ns = ns, .cap = cap, .opts = OPTS_UNKNOWN };

	return NOT_PREEMPTED(handle_check(ctx, &check, ret));
}

SEC("raw_tp/cap_capable")
int BPF_PROG(check__raw, const struct cred *cred, struct user_namespace *ns,
	     const struct user_namespace *capable_ns, int cap, int ret)
{
	struct check check = { .ns = ns, .cap = cap, .opts = OPTS_UNKNOWN };

	return NOT_PREEMPTED(handle_check(ctx, &check, ret));
}

/* The check that a thread is in, between the kprobe and the kretprobe. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, struct check);
} checks SEC(".maps");

SEC("kprobe/cap_capable")
int BPF_KPROBE(check__kprobe__enter, const struct cred *cred, struct user_namespace *ns, int cap,
	       unsigned int opts)
{
	struct check check = { .ns = ns, .cap = cap, .opts = opts };
	__u32 tid = bpf_get_current_pid_tgid();

	if (bpf_map_update_elem(&checks, &tid, &check, BPF_ANY))
		lost_add(map_full);
	return 0;
}

SEC("kretprobe/cap_capable")
int BPF_KRETPROBE(check__kprobe__exit, int ret)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct check *begun = bpf_map_lookup_elem(&checks, &tid), check;

	if (!begun) {
		lost_add(unobserved);
		return 0;
	}
	check = *begun;
	bpf_map_delete_elem(&checks, &tid);
	return handle_check(ctx, &check, ret);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
