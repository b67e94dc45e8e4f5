/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __SYSCALL_BPF_H
#define __SYSCALL_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/*
 * System calls as observed at raw_syscalls:sys_exit. At exit the registers still contain the
 * arguments, so one program has both arguments and result, and no state is needed. (A successful
 * execve is the exception: it has new registers.) Unlike the tracepoints of single calls,
 * raw_syscalls does not need CONFIG_FTRACE_SYSCALLS, and covers 32-bit tasks.
 */

/*
 * The attach type tp (perf's tracepoints raw_syscalls) has the number and the result in its context.
 * On kernels that can preempt programs of tp_btf and raw_tp it comes first: see
 * TRACEPOINTS_ARE_PREEMPTIBLE.
 */

/*
 * The user registers of the current task, from 5.15 on (dd6e10fbd9fb). Before, the value of the enum
 * does not exist, so that the program is not supported.
 */
static __always_inline struct pt_regs *syscall_regs(void)
{
	if (!bpf_core_enum_value(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return NULL;
	return (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
}

/* The ABI of a call: each has its own numbers (value.ABI). */
enum syscall_abi {
	SYSCALL_NATIVE,
	SYSCALL_COMPAT,
	SYSCALL_X32,
};

/*
 * Replaces negative numbers. No system call has one, but the return from a signal handler has -1,
 * and tasks can request any number. None of them may be equal to the negative NR_ of a call that
 * this architecture does not have.
 */
#define NO_SYSCALL (-2147483647 - 1)

static __always_inline __s32 syscall_number(__s32 nr)
{
	return nr < 0 ? NO_SYSCALL : nr;
}

#if defined(__TARGET_ARCH_x86)

#define __X32_SYSCALL_BIT 0x40000000
#define TS_COMPAT 0x0002

#define SYSCALL_NR(regs) syscall_number((regs)->orig_ax)

enum { /* arch/x86/entry/syscalls/syscall_64.tbl */
	NR_open = 2,
	NR_connect = 42,
	NR_accept = 43,
	NR_clone = 56,
	NR_fork = 57,
	NR_vfork = 58,
	NR_execve = 59,
	NR_creat = 85,
	NR_openat = 257,
	NR_accept4 = 288,
	NR_execveat = 322,
	NR_openat2 = 437,
	NR_x32_execve = 520,
	NR_x32_execveat = 545,
};

enum { /* arch/x86/entry/syscalls/syscall_32.tbl; there is no accept */
	NR_compat_accept = -2,
	NR_compat_open = 5,
	NR_compat_creat = 8,
	NR_compat_execve = 11,
	NR_compat_socketcall = 102,
	NR_compat_openat = 295,
	NR_compat_execveat = 358,
	NR_compat_connect = 362,
	NR_compat_accept4 = 364,
	NR_compat_openat2 = 437,
};

static __always_inline __s32 syscall_nr(struct pt_regs *regs)
{
	return syscall_number(BPF_CORE_READ(regs, orig_ax));
}

static __always_inline bool syscall_is_compat(struct pt_regs *regs)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread_info.status) & TS_COMPAT;
}

/* The same without a helper that reads memory, for tp_btf, from 5.11 on (3ca1032ab7ab). */
static __always_inline bool syscall_is_compat_btf(struct pt_regs *regs)
{
	struct task_struct *task;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf))
		return syscall_is_compat(regs);
	task = bpf_get_current_task_btf();
	return task->thread_info.status & TS_COMPAT;
}

/* syscall_arg returns argument n, from 0. 32-bit tasks pass arguments as on i386. */
static __always_inline __u64 syscall_arg(struct pt_regs *regs, int n, bool compat)
{
	if (compat) {
		switch (n) {
		case 0:
			return (__u32)BPF_CORE_READ(regs, bx);
		case 1:
			return (__u32)BPF_CORE_READ(regs, cx);
		case 2:
			return (__u32)BPF_CORE_READ(regs, dx);
		case 3:
			return (__u32)BPF_CORE_READ(regs, si);
		case 4:
			return (__u32)BPF_CORE_READ(regs, di);
		}
		return 0;
	}
	switch (n) {
	case 0:
		return BPF_CORE_READ(regs, di);
	case 1:
		return BPF_CORE_READ(regs, si);
	case 2:
		return BPF_CORE_READ(regs, dx);
	case 3:
		return BPF_CORE_READ(regs, r10);
	case 4:
		return BPF_CORE_READ(regs, r8);
	}
	return 0;
}

#elif defined(__TARGET_ARCH_arm64)

#define __X32_SYSCALL_BIT 0
#define PSR_MODE32_BIT 0x10

#define SYSCALL_NR(regs) syscall_number((regs)->syscallno)

enum { /* include/uapi/asm-generic/unistd.h; there is no open or creat */
	NR_open = -1,
	NR_creat = -2,
	NR_x32_execve = -3,
	NR_x32_execveat = -4,
	NR_fork = -5,
	NR_vfork = -6,
	NR_openat = 56,
	NR_accept = 202,
	NR_clone = 220,
	NR_connect = 203,
	NR_execve = 221,
	NR_accept4 = 242,
	NR_execveat = 281,
	NR_openat2 = 437,
};

enum { /* arch/arm64/tools/syscall_32.tbl; there is no socketcall */
	NR_compat_socketcall = -2,
	NR_compat_open = 5,
	NR_compat_creat = 8,
	NR_compat_execve = 11,
	NR_compat_connect = 283,
	NR_compat_accept = 285,
	NR_compat_openat = 322,
	NR_compat_accept4 = 366,
	NR_compat_execveat = 387,
	NR_compat_openat2 = 437,
};

static __always_inline __s32 syscall_nr(struct pt_regs *regs)
{
	return syscall_number(BPF_CORE_READ(regs, syscallno));
}

static __always_inline bool syscall_is_compat(struct pt_regs *regs)
{
	return BPF_CORE_READ(regs, user_regs.pstate) & PSR_MODE32_BIT;
}

static __always_inline bool syscall_is_compat_btf(struct pt_regs *regs)
{
	return regs->user_regs.pstate & PSR_MODE32_BIT;
}

/* The result has replaced x0; orig_x0 contains the first argument. */
static __always_inline __u64 syscall_arg(struct pt_regs *regs, int n, bool compat)
{
	__u64 arg;

	switch (n) {
	case 0:
		arg = BPF_CORE_READ(regs, orig_x0);
		break;
	case 1:
		arg = BPF_CORE_READ(regs, user_regs.regs[1]);
		break;
	case 2:
		arg = BPF_CORE_READ(regs, user_regs.regs[2]);
		break;
	case 3:
		arg = BPF_CORE_READ(regs, user_regs.regs[3]);
		break;
	case 4:
		arg = BPF_CORE_READ(regs, user_regs.regs[4]);
		break;
	default:
		arg = 0;
	}
	return compat ? (__u32)arg : arg;
}

#else
#error "syscall.bpf.h does not know this architecture"
#endif

/* For handlers that tp_btf and raw_tp programs share; btf is a constant. */
static __always_inline bool syscall_is_compat_for(struct pt_regs *regs, bool btf)
{
	return btf ? syscall_is_compat_btf(regs) : syscall_is_compat(regs);
}

/* Numbers from 424 on are the same on all architectures. ARM has the numbers of i386 below 300. */
enum {
	NR_clone3 = 435,
	NR_compat_fork = 2,
	NR_compat_clone = 120,
	NR_compat_vfork = 190,
};

static __always_inline enum syscall_abi syscall_abi(__s32 nr, bool compat)
{
	if (compat)
		return SYSCALL_COMPAT;
	return nr & __X32_SYSCALL_BIT ? SYSCALL_X32 : SYSCALL_NATIVE;
}

/* nr is without the x32 bit. */
static __always_inline bool syscall_is_fork(__s32 nr, bool compat)
{
	if (compat)
		return nr == NR_compat_fork || nr == NR_compat_clone || nr == NR_compat_vfork ||
		       nr == NR_clone3;
	return nr == NR_clone || nr == NR_fork || nr == NR_vfork || nr == NR_clone3;
}

/*
 * syscall_exec_path_arg returns the index of the path in the arguments of execve and execveat, -1
 * for other calls. nr is with the x32 bit. The same number can be another call in another ABI: 11
 * is execve on i386, and munmap on x86-64.
 */
static __always_inline int syscall_exec_path_arg(__s32 nr, bool compat)
{
	if (nr == (compat ? NR_compat_execve : NR_execve))
		return 0;
	if (nr == (compat ? NR_compat_execveat : NR_execveat))
		return 1;
	if (compat)
		return -1;
	if (nr == (__X32_SYSCALL_BIT | NR_x32_execve))
		return 0;
	if (nr == (__X32_SYSCALL_BIT | NR_x32_execveat))
		return 1;
	return -1;
}

static __always_inline bool syscall_is_exec(__s32 nr, bool compat)
{
	return syscall_exec_path_arg(nr, compat) >= 0;
}

/* Reports whether nr is an exec call in any ABI: a cheap check before the ABI is read. */
static __always_inline bool syscall_is_exec_in_any(__s32 nr)
{
	return syscall_is_exec(nr, false) || syscall_is_exec(nr, true);
}

/*
 * syscall_may_end_exec reports whether this can be the return of a successful exec. On x86 the
 * number is then that of execve in the ABI of the new program, whichever call it was
 * (set_personality_64bit()). On arm64 it is the number of the call, while the ABI is that of the
 * new program.
 */
static __always_inline bool syscall_may_end_exec(__s32 nr, bool compat)
{
	if (!syscall_is_exec_in_any(nr))
		return false;
#if defined(__TARGET_ARCH_x86)
	return syscall_is_exec(nr, compat);
#else
	return true;
#endif
}

#endif
