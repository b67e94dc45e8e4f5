// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

/* Only failed calls. setfsuid and setfsgid do not report failures. */
const volatile bool targ_failed = false;

/* A call: what it sets, the number of its arguments, and their size. */
#define CALL_GROUP 0x10
#define CALL_16BIT 0x20
#define CALL_FS 0x40
#define CALL_ARGS 0x0f

/* User or group IDs of a task, in the initial user namespace. */
struct ids {
	__u32 real;
	__u32 effective;
	__u32 saved;
	__u32 fs;
};

struct event {
	struct task_info task;
	struct ids before;
	struct ids after;
	__s64 ret;
	__s32 args[3];
	__u32 nr;
	__u32 abi;
	__u8 nr_args;
	__u8 group;
	__u8 fs;
	__u8 has_before;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* The numbers of i386, and of ARM, which has the same. */
static __always_inline __u32 id_call_compat(__s32 nr)
{
	switch (nr) {
	case 23: /* setuid16 */
		return 1 | CALL_16BIT;
	case 46: /* setgid16 */
		return 1 | CALL_16BIT | CALL_GROUP;
	case 70: /* setreuid16 */
		return 2 | CALL_16BIT;
	case 71: /* setregid16 */
		return 2 | CALL_16BIT | CALL_GROUP;
	case 138: /* setfsuid16 */
		return 1 | CALL_16BIT | CALL_FS;
	case 139: /* setfsgid16 */
		return 1 | CALL_16BIT | CALL_FS | CALL_GROUP;
	case 164: /* setresuid16 */
		return 3 | CALL_16BIT;
	case 170: /* setresgid16 */
		return 3 | CALL_16BIT | CALL_GROUP;
	case 203: /* setreuid */
		return 2;
	case 204: /* setregid */
		return 2 | CALL_GROUP;
	case 208: /* setresuid */
		return 3;
	case 210: /* setresgid */
		return 3 | CALL_GROUP;
	case 213: /* setuid */
		return 1;
	case 214: /* setgid */
		return 1 | CALL_GROUP;
	case 215: /* setfsuid */
		return 1 | CALL_FS;
	case 216: /* setfsgid */
		return 1 | CALL_FS | CALL_GROUP;
	}
	return 0;
}

#if defined(__TARGET_ARCH_x86)
enum { /* arch/x86/entry/syscalls/syscall_64.tbl */
	NR_setuid = 105,
	NR_setgid = 106,
	NR_setreuid = 113,
	NR_setregid = 114,
	NR_setresuid = 117,
	NR_setresgid = 119,
	NR_setfsuid = 122,
	NR_setfsgid = 123,
};
#else
enum { /* include/uapi/asm-generic/unistd.h */
	NR_setregid = 143,
	NR_setgid = 144,
	NR_setreuid = 145,
	NR_setuid = 146,
	NR_setresuid = 147,
	NR_setresgid = 149,
	NR_setfsuid = 151,
	NR_setfsgid = 152,
};
#endif

/* id_call returns 0 for other calls. nr is without the x32 bit. */
static __always_inline __u32 id_call(__s32 nr, bool compat)
{
	if (compat)
		return id_call_compat(nr);
	switch (nr) {
	case NR_setuid:
		return 1;
	case NR_setgid:
		return 1 | CALL_GROUP;
	case NR_setreuid:
		return 2;
	case NR_setregid:
		return 2 | CALL_GROUP;
	case NR_setresuid:
		return 3;
	case NR_setresgid:
		return 3 | CALL_GROUP;
	case NR_setfsuid:
		return 1 | CALL_FS;
	case NR_setfsgid:
		return 1 | CALL_FS | CALL_GROUP;
	}
	return 0;
}

/* The cheap check comes first: almost all calls are others. */
static __always_inline __u32 id_call_of(struct pt_regs *regs, __s32 nr, bool *compat, bool btf)
{
	nr &= ~__X32_SYSCALL_BIT;
	if (!id_call(nr, false) && !id_call(nr, true))
		return 0;
	*compat = syscall_is_compat_for(regs, btf);
	return id_call(nr, *compat);
}

/* The IDs of threads that are in such a call. The call removes its entry when it returns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* thread */
	__type(value, struct ids);
} calls SEC(".maps");

static __always_inline void read_ids(struct ids *ids, __u32 call)
{
	const struct cred *cred = BPF_CORE_READ(task_current(), cred);

	if (call & CALL_GROUP) {
		ids->real = BPF_CORE_READ(cred, gid.val);
		ids->effective = BPF_CORE_READ(cred, egid.val);
		ids->saved = BPF_CORE_READ(cred, sgid.val);
		ids->fs = BPF_CORE_READ(cred, fsgid.val);
	} else {
		ids->real = BPF_CORE_READ(cred, uid.val);
		ids->effective = BPF_CORE_READ(cred, euid.val);
		ids->saved = BPF_CORE_READ(cred, suid.val);
		ids->fs = BPF_CORE_READ(cred, fsuid.val);
	}
}

/* The task filter is applied at the end: the call can change the user. */
static __always_inline int handle_enter(struct pt_regs *regs, __s32 nr, bool btf)
{
	__u32 tid = bpf_get_current_pid_tgid(), call;
	struct ids ids = {};
	bool compat = false;

	call = id_call_of(regs, nr, &compat, btf);
	if (!call)
		return 0;
	read_ids(&ids, call);
	bpf_map_update_elem(&calls, &tid, &ids, BPF_ANY);
	return 0;
}

/* 16-bit IDs are 65535 instead of -1 for no change (low2highuid()). */
static __always_inline __s32 id_arg(struct pt_regs *regs, int n, __u32 call, bool compat)
{
	__u32 arg = syscall_arg(regs, n, compat);

	if (!(call & CALL_16BIT))
		return arg;
	arg = (__u16)arg;
	return arg == 0xffff ? -1 : arg;
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	__u32 tid = bpf_get_current_pid_tgid(), call;
	struct event e = { .ret = ret };
	bool compat = false;
	struct ids *before;

	call = id_call_of(regs, nr, &compat, btf);
	if (!call)
		return 0;
	if (compat)
		e.ret = (__s32)ret;
	before = bpf_map_lookup_elem(&calls, &tid);
	if (before) {
		e.before = *before;
		e.has_before = 1;
		bpf_map_delete_elem(&calls, &tid);
	}
	if ((targ_failed && (call & CALL_FS || e.ret >= 0)) || !task_current_wanted())
		return 0;
	task_info_current(&e.task);
	read_ids(&e.after, call);
	e.args[0] = id_arg(regs, 0, call, compat);
	e.args[1] = id_arg(regs, 1, call, compat);
	e.args[2] = id_arg(regs, 2, call, compat);
	e.nr = nr & ~__X32_SYSCALL_BIT;
	e.abi = syscall_abi(nr, compat);
	e.nr_args = call & CALL_ARGS;
	e.group = !!(call & CALL_GROUP);
	e.fs = !!(call & CALL_FS);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(call__btf__enter, struct pt_regs *regs, long id)
{
	return handle_enter(regs, SYSCALL_NR(regs), true);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call__btf__exit, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_enter")
int BPF_PROG(call__raw__enter, struct pt_regs *regs, long id)
{
	return handle_enter(regs, syscall_nr(regs), false);
}

SEC("tp/raw_syscalls/sys_enter")
int call__tp__enter(struct trace_event_raw_sys_enter *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return handle_enter(regs, syscall_nr(regs), false);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(call__raw__exit, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int call__tp__exit(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
