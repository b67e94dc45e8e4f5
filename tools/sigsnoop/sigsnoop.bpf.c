// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "path.bpf.h"
#include "pid.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

/* include/uapi/asm-generic/siginfo.h: codes of signals from system calls are at most 0. */
#define SI_USER 0
#define SI_TIMER -2
#define SI_MESGQ -3
#define SI_ASYNCIO -4
#define SI_SIGIO -5
#define SI_KERNEL 0x80

/* Pointers to the information about a signal that stand for a constant. */
#define SEND_SIG_NOINFO 0
#define SEND_SIG_PRIV 1

#define SIGILL 4
#define SIGTRAP 5
#define SIGBUS 7
#define SIGFPE 8
#define SIGSEGV 11
#define SIGALRM 14
#define SIGCHLD 17
#define SIGURG 23
#define SIGIO 29
#define SIGSYS 31

/* Only failed calls, or signals that were not delivered. */
const volatile bool targ_failed = false;
/* Selected signals, one bit each from signal 1 on, or 0 for all. */
const volatile __u64 targ_signals = 0;
/* Also calls with signal 0, if some signals are selected. */
const volatile bool targ_signal_0 = false;
/* The target, a process or a thread, or 0. */
const volatile __u32 targ_tpid = 0;

enum result {
	DELIVERED, /* include/trace/events/signal.h */
	IGNORED,
	ALREADY_PENDING,
	OVERFLOW_FAIL,
	LOSE_INFO,
	NO_RESULT, /* of a call */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum result *result_type __attribute__((unused));

/* A task that gets a signal. */
struct signalled {
	__u32 pid;
	__u32 tid;
	__u32 count; /* number of signals that the call sent */
	__u32 sig;
	char comm[TASK_COMM_LEN];
};

struct event {
	struct task_info task; /* the sender */
	struct signalled target;
	__s32 code; /* si_code */
	__s32 ret; /* of the call */
	__s32 arg; /* target as given in the call */
	__u32 nr; /* number of the call */
	__u32 abi;
	__u8 result;
	__u8 group; /* the signal is for the process */
	__u8 kernel; /* sent by the kernel */
	__u8 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline bool signal_wanted(__u32 sig)
{
	if (!targ_signals && !targ_signal_0)
		return true;
	if (!sig)
		return targ_signal_0;
	return sig <= 64 && targ_signals >> (sig - 1) & 1;
}

static __always_inline __s32 signal_code(struct kernel_siginfo *info)
{
	if ((__u64)info == SEND_SIG_NOINFO)
		return SI_USER;
	if ((__u64)info == SEND_SIG_PRIV)
		return SI_KERNEL;
	return BPF_CORE_READ(info, si_code);
}

static __always_inline bool is_from_kernel(__s32 code)
{
	return code > 0 || code == SI_TIMER || code == SI_MESGQ || code == SI_ASYNCIO ||
	       code == SI_SIGIO;
}

static __always_inline bool is_fault_or_child(__u32 sig)
{
	return sig == SIGILL || sig == SIGTRAP || sig == SIGBUS || sig == SIGFPE ||
	       sig == SIGSEGV || sig == SIGCHLD || sig == SIGSYS;
}

/*
 * Timers and asynchronous I/O send signals from interrupts, where the current task is an arbitrary
 * one.
 */
static __always_inline bool has_sender(__u32 sig, __s32 code)
{
	if (code == SI_TIMER || code == SI_ASYNCIO || code == SI_SIGIO)
		return false;
	if (code == SI_KERNEL)
		return sig != SIGALRM && sig != SIGURG && sig != SIGIO;
	return code <= 0 || is_fault_or_child(sig);
}

static __always_inline void read_target(struct signalled *t, struct task_struct *task, __u32 sig)
{
	t->pid = BPF_CORE_READ(task, tgid);
	t->tid = BPF_CORE_READ(task, pid);
	t->sig = sig;
	BPF_CORE_READ_STR_INTO(&t->comm, task, comm);
}

static __always_inline bool is_target(struct task_struct *task)
{
	return task_local_pid(task) == targ_tpid || task_local_tid(task) == targ_tpid;
}

static __always_inline int handle_signal(void *ctx, __u32 sig, struct kernel_siginfo *info,
					 struct task_struct *task, int group, int result)
{
	struct event e = { .code = signal_code(info), .result = result, .group = !!group };

	if (!signal_wanted(sig) || (targ_failed && result == DELIVERED))
		return 0;
	if (targ_tpid && !is_target(task))
		return 0;
	e.kernel = (__u64)info <= SEND_SIG_PRIV || is_from_kernel(e.code);
	if (has_sender(sig, e.code)) {
		if (!task_current_wanted())
			return 0;
		task_info_current(&e.task);
	} else if (!task_filter) {
		e.task.time_ns = bpf_ktime_get_boot_ns();
		e.task.uid = -1;
	} else {
		return 0;
	}
	read_target(&e.target, task, sig);
	e.target.count = 1;
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(signal__btf, int sig, struct kernel_siginfo *info, struct task_struct *task, int group,
	     int result)
{
	return handle_signal(ctx, sig, info, task, group, result);
}

SEC("raw_tp/signal_generate")
int BPF_PROG(signal__raw, int sig, struct kernel_siginfo *info, struct task_struct *task, int group,
	     int result)
{
	return handle_signal(ctx, sig, info, task, group, result);
}

/* The hook "kill": calls that send signals, with their targets. */

enum kill_call {
	CALL_NONE,
	CALL_KILL, /* kill(pid, sig) */
	CALL_TKILL, /* tkill(tid, sig), rt_sigqueueinfo(pid, sig, info) */
	CALL_TGKILL, /* tgkill(pid, tid, sig), rt_tgsigqueueinfo(pid, tid, sig, info) */
	CALL_PIDFD, /* pidfd_send_signal(pidfd, sig, info, flags) */
};

static __always_inline enum kill_call kill_call(__s32 nr, bool compat)
{
	if (nr == 424)
		return CALL_PIDFD;
	if (compat) { /* ARM has the same numbers, except for those with a comment */
		switch (nr) {
		case 37:
			return CALL_KILL;
		case 178:
		case 238:
			return CALL_TKILL;
#if defined(__TARGET_ARCH_x86)
		case 270:
		case 335:
#else
		case 268: /* tgkill */
		case 363: /* rt_tgsigqueueinfo */
#endif
			return CALL_TGKILL;
		}
		return CALL_NONE;
	}
	switch (nr) {
#if defined(__TARGET_ARCH_x86)
	case 62: /* arch/x86/entry/syscalls/syscall_64.tbl */
		return CALL_KILL;
	case 129:
	case 200:
	case __X32_SYSCALL_BIT | 524:
		return CALL_TKILL;
	case 234:
	case 297:
	case __X32_SYSCALL_BIT | 536:
		return CALL_TGKILL;
#else
	case 129: /* include/uapi/asm-generic/unistd.h */
		return CALL_KILL;
	case 130:
	case 138:
		return CALL_TKILL;
	case 131:
	case 240:
		return CALL_TGKILL;
#endif
	}
	return CALL_NONE;
}

struct sent {
	struct signalled first;
	bool to_target; /* one of the signals is for targ_tpid */
	__u8 pad[3];
};

/*
 * The signals of the call that a thread is in. The call deletes its entry when it returns, before the
 * thread handles signals.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* thread */
	__type(value, struct sent);
} targets SEC(".maps");

static __always_inline int handle_target(__u32 sig, struct kernel_siginfo *info,
					 struct task_struct *task, int result)
{
	__u32 tid = bpf_get_current_pid_tgid();
	bool to_target = targ_tpid && is_target(task), is_sent = result != OVERFLOW_FAIL;
	struct sent s = { .to_target = to_target }, *sent;

	if ((__u64)info <= SEND_SIG_PRIV || is_from_kernel(signal_code(info)) ||
	    !signal_wanted(sig) || !task_current_wanted())
		return 0;
	sent = bpf_map_lookup_elem(&targets, &tid);
	if (sent && sent->first.sig == sig) {
		sent->first.count += is_sent;
		sent->to_target |= to_target;
		return 0;
	}
	read_target(&s.first, task, sig);
	s.first.count = is_sent;
	if (bpf_map_update_elem(&targets, &tid, &s, BPF_ANY))
		lost_add(map_full);
	return 0;
}

#define GROUP_MEMBERS_TRIED 64

/* Whether the target is one of the first members of a process group. */
static __noinline int is_in_group(struct pid *group)
{
	struct hlist_node *at = pid_first(group, PIDTYPE_PGID);

	for (int i = 0; i < GROUP_MEMBERS_TRIED && at; i++) {
		if (task_local_pid(pid_task(at, PIDTYPE_PGID)) == targ_tpid)
			return 1;
		at = BPF_CORE_READ(at, next);
	}
	return 0;
}

static __noinline int is_target_pid(struct pid *pid)
{
	struct hlist_node *node = pid ? pid_first(pid, PIDTYPE_PID) : NULL;

	return node && is_target(pid_task(node, PIDTYPE_PID));
}

/* An ID of a process or thread, in the PID namespace of the caller. */
static __always_inline bool is_target_id(__u32 id)
{
	struct pid_namespace *ns = pid_current_ns();

	if (id == targ_tpid && (local_pidns ? BPF_CORE_READ(ns, ns.inum) == local_pidns :
					      !BPF_CORE_READ(ns, level)))
		return true;
	return is_target_pid(pid_find(ns, id));
}

/*
 * Whether the arguments name the target. The signals that a call sends show which processes get it,
 * but a call that fails or only checks the target (signal 0) sends none.
 */
static __always_inline bool names_target(enum kill_call call, struct pt_regs *regs, __s32 arg,
					 bool compat)
{
	if (call == CALL_PIDFD)
		return is_target_pid(pid_of_file(task_file(task_current(), arg)));
	if (call == CALL_TGKILL && is_target_id(syscall_arg(regs, 1, compat)))
		return true;
	if (arg > 0)
		return is_target_id(arg);
	if (call != CALL_KILL)
		return false;
	if (arg == -1) /* all processes */
		return true;
	return is_in_group(arg ? pid_find(pid_current_ns(), -arg) :
				 BPF_CORE_READ(task_current(), signal, pids[PIDTYPE_PGID]));
}

static __always_inline int handle_kill(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	bool compat = false, to_target = false;
	enum kill_call call = kill_call(nr, false), other = kill_call(nr, true);
	struct event e = { .result = NO_RESULT, .ret = ret };
	struct sent *sent;
	__u32 tid = bpf_get_current_pid_tgid(), sig;

	if (call == CALL_NONE && other == CALL_NONE)
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (compat)
		call = other;
	if (call == CALL_NONE)
		return 0;
	sig = syscall_arg(regs, call == CALL_TGKILL ? 2 : 1, compat);
	e.arg = syscall_arg(regs, 0, compat);
	sent = bpf_map_lookup_elem(&targets, &tid);
	if (sent && sent->first.sig == sig) {
		e.target = sent->first;
		to_target = sent->to_target;
	}
	if (sent)
		bpf_map_delete_elem(&targets, &tid);
	if ((targ_failed && e.ret >= 0) || !signal_wanted(sig) || !task_current_wanted())
		return 0;
	if (targ_tpid && !to_target && !names_target(call, regs, e.arg, compat))
		return 0;
	task_info_current(&e.task);
	e.target.sig = sig;
	e.nr = nr & ~__X32_SYSCALL_BIT;
	e.abi = syscall_abi(nr, compat);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(kill__btf__signal, int sig, struct kernel_siginfo *info, struct task_struct *task, int group,
	     int result)
{
	return handle_target(sig, info, task, result);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(kill__btf__exit, struct pt_regs *regs, long ret)
{
	return handle_kill(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/signal_generate")
int BPF_PROG(kill__raw__signal, int sig, struct kernel_siginfo *info, struct task_struct *task, int group,
	     int result)
{
	return handle_target(sig, info, task, result);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(kill__raw__exit, struct pt_regs *regs, long ret)
{
	return handle_kill(ctx, regs, syscall_nr(regs), ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
