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

#define MAX_ERRNO 4095

/* User space uses these numbers. */
enum shm_call {
	SHM_NONE,
	SHM_GET,
	SHM_AT,
	SHM_DT,
	SHM_CTL,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum shm_call *shm_call_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 address; /* argument of shmat and shmdt, buffer of shmctl */
	__u64 size;
	__s64 ret;
	__u32 call;
	__s32 key;
	__s32 id;
	__s32 flags;
	__s32 command;
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

#if defined(__TARGET_ARCH_x86)

/* arch/x86/entry/syscalls/syscall_64.tbl */
static __always_inline enum shm_call call_native(__s32 nr)
{
	switch (nr) {
	case 29:
		return SHM_GET;
	case 30:
		return SHM_AT;
	case 31:
		return SHM_CTL;
	case 67:
		return SHM_DT;
	}
	return SHM_NONE;
}

/* arch/x86/entry/syscalls/syscall_32.tbl: since 5.1 there are separate calls beside ipc(2). */
static __always_inline enum shm_call call_compat(__s32 nr)
{
	switch (nr) {
	case 395:
		return SHM_GET;
	case 396:
		return SHM_CTL;
	case 397:
		return SHM_AT;
	case 398:
		return SHM_DT;
	}
	return SHM_NONE;
}

#define NR_compat_ipc 117

#elif defined(__TARGET_ARCH_arm64)

/* include/uapi/asm-generic/unistd.h */
static __always_inline enum shm_call call_native(__s32 nr)
{
	switch (nr) {
	case 194:
		return SHM_GET;
	case 195:
		return SHM_CTL;
	case 196:
		return SHM_AT;
	case 197:
		return SHM_DT;
	}
	return SHM_NONE;
}

/* arch/arm64/tools/syscall_32.tbl */
static __always_inline enum shm_call call_compat(__s32 nr)
{
	switch (nr) {
	case 305:
		return SHM_AT;
	case 306:
		return SHM_DT;
	case 307:
		return SHM_GET;
	case 308:
		return SHM_CTL;
	}
	return SHM_NONE;
}

#define NR_compat_ipc -1 /* only in an ABI that arm64 does not support */

#endif

/* The arguments of a call, in the order of shmget(2), shmat(2), shmdt(2) and shmctl(2). */
static __always_inline void fill(struct event *e, enum shm_call call, __u64 first, __u64 second,
				 __u64 third)
{
	e->call = call;
	switch (call) {
	case SHM_GET:
		e->key = first;
		e->size = second;
		e->flags = third;
		break;
	case SHM_AT:
		e->id = first;
		e->address = second;
		e->flags = third;
		break;
	case SHM_DT:
		e->address = first;
		break;
	case SHM_CTL:
		e->id = first;
		e->command = second;
		e->address = third;
		break;
	default:
		break;
	}
}

/*
 * ipc(2) of i386: ipc(call, first, second, third, ptr). It stores the address at which memory was
 * attached at the address third, and returns 0.
 */
static __always_inline void fill_ipc(struct event *e, struct pt_regs *regs)
{
	__u64 first = syscall_arg(regs, 1, true), second = syscall_arg(regs, 2, true);
	__u64 third = syscall_arg(regs, 3, true), pointer = syscall_arg(regs, 4, true);
	__u32 attached = 0;

	switch (syscall_arg(regs, 0, true) & 0xffff) {
	case 21:
		fill(e, SHM_AT, first, pointer, second);
		if (!e->ret && !bpf_probe_read_user(&attached, sizeof(attached), (void *)third))
			e->ret = attached;
		break;
	case 22:
		fill(e, SHM_DT, pointer, 0, 0);
		break;
	case 23:
		fill(e, SHM_GET, first, second, third);
		break;
	case 24:
		fill(e, SHM_CTL, first, second, pointer);
		break;
	}
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret,
				       bool btf)
{
	struct event e = { .ret = ret };
	enum shm_call call;
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (!call_native(nr) && !call_compat(nr) && nr != NR_compat_ipc)
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	call = compat ? call_compat(nr) : call_native(nr);
	if (compat) /* an error, or an address of up to 32 bits */
		e.ret = (__u32)ret >= -(__u32)MAX_ERRNO ? (__s64)(__s32)ret : (__u32)ret;
	if (compat && nr == NR_compat_ipc)
		fill_ipc(&e, regs);
	else
		fill(&e, call, syscall_arg(regs, 0, compat), syscall_arg(regs, 1, compat),
		     syscall_arg(regs, 2, compat));
	if (!e.call || !task_current_wanted())
		return 0;
	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(call__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int call__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
