// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "futexholder.bpf.h"
#include "stackid.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

/* Group histograms by these; the other members of the key are 0. */
const volatile bool by_thread = true;
const volatile bool by_outcome = false;
const volatile bool by_holder = false;
const volatile bool by_holder_stack = false; /* only with by_holder */
/* Only waits for this address; 0 for all. */
const volatile __u64 targ_lock = 0;

enum outcome {
	OUTCOME_WOKEN, /* or the lock was acquired */
	OUTCOME_TIMEOUT,
	OUTCOME_INTERRUPTED, /* by a signal */
};

struct hist_key {
	stack_id_t user_stack; /* if by_thread */
	stack_id_t holder_stack; /* user stack when it released the lock, if by_holder_stack */
	__u64 lock;
	__u32 pid;
	__u32 tid; /* if by_thread */
	char comm[TASK_COMM_LEN]; /* of the thread if by_thread, otherwise of the process */
	enum outcome outcome; /* if by_outcome */
	__u32 holder; /* TID, if by_holder; 0 if unknown */
	char holder_comm[TASK_COMM_LEN];
};

#include "histtask.bpf.h"
#include "stacks.bpf.h"

struct counters {
	__u64 unblocked; /* calls that did not wait, because the futex had another value (EAGAIN) */
	__u64 failed; /* calls that failed in another way, such as EFAULT */
	__u64 waiting; /* waits that had not ended when the run ended */
};

#include "counters.bpf.h"

#if defined(__TARGET_ARCH_x86)
enum {
	NR_restart_syscall = 219,
	NR_futex = 202,
};
#else
enum {
	NR_restart_syscall = 128,
	NR_futex = 98,
};
#endif
enum {
	NR_compat_restart_syscall = 0,
	NR_compat_futex = 240,
	NR_compat_futex_time64 = 422,
	NR_futex_waitv = 449,
	NR_futex_wait = 455,
};

enum { /* include/uapi/linux/futex.h */
	FUTEX_WAIT = 0,
	FUTEX_LOCK_PI = 6,
	FUTEX_WAIT_BITSET = 9,
	FUTEX_WAIT_REQUEUE_PI = 11,
	FUTEX_LOCK_PI2 = 13,
	FUTEX_CMD = 127, /* without the flags */
};

enum { /* include/uapi/asm-generic/errno.h, include/linux/errno.h */
	EINTR = 4,
	EAGAIN = 11,
	ETIMEDOUT = 110,
	ERESTARTSYS = 512,
	ERESTART_RESTARTBLOCK = 516,
};

/* A call of a thread that waits. */
struct futex_wait {
	__u64 since_ns; /* CLOCK_MONOTONIC; 0 between a signal and the restart of the call */
	__u64 lock;
	stack_id_t holder_stack; /* if by_holder_stack, after the holder has woken the thread */
	__u32 holder; /* if by_holder */
	__u32 pad;
	char holder_comm[TASK_COMM_LEN];
};

/* Keyed by thread. An entry exists during the call, or until the thread is killed in it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, __u32);
	__type(value, struct futex_wait);
} waits SEC(".maps") USER_SPACE;

static __always_inline bool futex_waits(__u32 op)
{
	switch (op & FUTEX_CMD) {
	case FUTEX_WAIT:
	case FUTEX_LOCK_PI:
	case FUTEX_WAIT_BITSET:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_LOCK_PI2:
		return true;
	}
	return false;
}

/* The address that the call waits for, 0 if it does not wait. nr is without the x32 bit. */
static __always_inline __u64 futex_lock(struct pt_regs *regs, __s32 nr, bool compat)
{
	__u64 lock = syscall_arg(regs, 0, compat);

	if (nr == NR_futex_wait)
		return lock;
	if (nr == NR_futex_waitv) { /* the first of several: struct futex_waitv */
		bpf_probe_read_user(&lock, sizeof(lock), (void *)lock + sizeof(__u64));
		return lock;
	}
	if (compat ? nr != NR_compat_futex && nr != NR_compat_futex_time64 : nr != NR_futex)
		return 0;
	return futex_waits(syscall_arg(regs, 1, compat)) ? lock : 0;
}

/* Whether the call has an argument that the futex is compared with, or the TID of the holder. */
static __always_inline bool knows_holder(struct pt_regs *regs, __s32 nr, bool compat, bool *is_pi)
{
	__u32 op = syscall_arg(regs, 1, compat) & FUTEX_CMD;

	if (compat || nr != NR_futex)
		return false;
	*is_pi = op == FUTEX_LOCK_PI || op == FUTEX_LOCK_PI2;
	return *is_pi || op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET;
}

static __always_inline void read_holder(struct pt_regs *regs, __s32 nr, bool compat, struct futex_wait *wait)
{
	struct task_struct *holder = NULL;
	bool is_pi = false;

	if (knows_holder(regs, nr, compat, &is_pi))
		holder = (void *)futex_holder(wait->lock, syscall_arg(regs, 2, compat), is_pi);
	if (!holder)
		return;
	wait->holder = BPF_CORE_READ(holder, pid);
	BPF_CORE_READ_STR_INTO(&wait->holder_comm, holder, comm);
}

static __always_inline bool is_restart(__s32 nr, bool compat)
{
	return nr == (compat ? NR_compat_restart_syscall : NR_restart_syscall);
}

/* After a signal, restart_syscall(2) continues a call that has a timeout. */
static __always_inline void restart_wait(__u32 tid)
{
	struct futex_wait *wait = bpf_map_lookup_elem(&waits, &tid);

	if (wait && !wait->since_ns)
		wait->since_ns = bpf_ktime_get_ns();
}

/*
 * Reports whether the call may wait for a futex, and its ABI. nr is without the x32 bit. 0 is a
 * frequent call of the native ABI.
 */
static __always_inline bool may_wait(struct pt_regs *regs, __s32 nr, bool btf, bool *compat)
{
	if (nr != NR_futex && nr != NR_compat_futex && nr != NR_compat_futex_time64 &&
	    nr != NR_futex_waitv && nr != NR_futex_wait && nr != NR_restart_syscall &&
	    nr != NR_compat_restart_syscall)
		return false;
	*compat = syscall_is_compat_for(regs, btf);
	return nr != NR_compat_restart_syscall || *compat;
}

static __always_inline int handle_enter(struct pt_regs *regs, __s32 nr, bool btf)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct futex_wait wait = {};
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (!may_wait(regs, nr, btf, &compat))
		return 0;
	if (is_restart(nr, compat)) {
		restart_wait(tid);
		return 0;
	}
	wait.lock = futex_lock(regs, nr, compat);
	if (!wait.lock || (targ_lock && wait.lock != targ_lock) || !task_current_wanted())
		return 0;
	if (by_holder)
		read_holder(regs, nr, compat, &wait);
	wait.since_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&waits, &tid, &wait, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/*
 * A function of its own, because its stack and that of the unwinder together exceed 512 bytes, which
 * older kernels refuse (6.1).
 */
static __noinline int record_wait(const struct hist_key *key, __u64 ns)
{
	hist_record_task(key, ns, task_current());
	return 0;
}

static __always_inline void count_wait(void *ctx, const struct futex_wait *wait, enum outcome outcome, __u64 ns)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct hist_key key = { .lock = wait->lock, .pid = id >> 32 };
	struct task_struct *task = task_current();

	if (by_outcome)
		key.outcome = outcome;
	if (by_holder) {
		key.holder = wait->holder;
		key.holder_stack = wait->holder_stack;
		__builtin_memcpy(key.holder_comm, wait->holder_comm, sizeof(key.holder_comm));
	}
	if (by_thread) {
		key.tid = id;
		bpf_get_current_comm(key.comm, sizeof(key.comm));
		key.user_stack = user_stack(ctx);
	} else {
		BPF_CORE_READ_STR_INTO(&key.comm, task, group_leader, comm);
	}
	record_wait(&key, ns);
}

/*
 * Whether the call that ends is the one that began the wait. It is a later one if the kernel skipped the
 * program at the end of that one (see TRACEPOINTS_ARE_PREEMPTIBLE).
 */
static __always_inline bool is_same_call(struct pt_regs *regs, __s32 nr, bool compat, const struct futex_wait *wait)
{
	return is_restart(nr, compat) || nr == NR_futex_waitv || futex_lock(regs, nr, compat) == wait->lock;
}

/* The entry remains if restart_syscall(2) can follow. */
static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret,
				       bool btf)
{
	__u64 now_ns = bpf_ktime_get_ns(), since_ns;
	__u32 tid = bpf_get_current_pid_tgid();
	struct futex_wait *wait, ended;
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (!may_wait(regs, nr, btf, &compat))
		return 0;
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (!wait)
		return 0;
	if (!is_same_call(regs, nr, compat, wait)) {
		bpf_map_delete_elem(&waits, &tid);
		return 0;
	}
	ended = *wait;
	since_ns = ended.since_ns;
	if (ret == -ERESTART_RESTARTBLOCK)
		wait->since_ns = 0;
	else
		bpf_map_delete_elem(&waits, &tid);
	if (!since_ns)
		return 0;
	if (ret >= 0)
		count_wait(ctx, &ended, OUTCOME_WOKEN, now_ns - since_ns);
	else if (ret == -ETIMEDOUT)
		count_wait(ctx, &ended, OUTCOME_TIMEOUT, now_ns - since_ns);
	else if (ret == -EINTR || (ret <= -ERESTARTSYS && ret >= -ERESTART_RESTARTBLOCK))
		count_wait(ctx, &ended, OUTCOME_INTERRUPTED, now_ns - since_ns);
	else if (ret == -EAGAIN)
		counter_add(unblocked);
	else
		counter_add(failed);
	return 0;
}

/* Whether the current task is in a call for this futex. In an interrupt it is in none. */
static __always_inline bool in_call_for(__u64 lock)
{
	struct pt_regs *regs = syscall_regs();

	return regs && syscall_nr(regs) == NR_futex && !syscall_is_compat(regs) &&
	       syscall_arg(regs, 0, false) == lock;
}

/*
 * Runs in the context of the task that wakes p. The last wake-up is the one that ends the wait. If the
 * holder does so in a call for the futex, it releases the lock.
 */
static __always_inline int handle_waking(void *ctx, struct task_struct *p)
{
	__u32 tid = BPF_CORE_READ(p, pid), me = bpf_get_current_pid_tgid();
	struct futex_wait *wait = bpf_map_lookup_elem(&waits, &tid);

	if (!wait || !wait->since_ns || !wait->holder)
		return 0;
	wait->holder_stack = wait->holder == me && in_call_for(wait->lock) ? user_stack(ctx) : 0;
	return 0;
}

/* A thread that is killed in a call does not return from it. */
static __always_inline int handle_death(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&waits, &tid);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter__btf, struct pt_regs *regs, long nr)
{
	return handle_enter(regs, nr, true);
}

SEC("raw_tp/sys_enter")
int BPF_PROG(enter__raw, struct pt_regs *regs, long nr)
{
	return handle_enter(regs, nr, false);
}

SEC("tp/raw_syscalls/sys_enter")
int enter__tp(struct trace_event_raw_sys_enter *ctx)
{
	return handle_enter(syscall_regs(), ctx->id, false);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(exit__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(exit__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int exit__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(waking__btf, struct task_struct *p)
{
	return handle_waking(ctx, p);
}

SEC("raw_tp/sched_waking")
int BPF_PROG(waking__raw, struct task_struct *p)
{
	return handle_waking(ctx, p);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(death__btf)
{
	return handle_death();
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(death__raw)
{
	return handle_death();
}

/* Called for each entry at the end of the run. */
SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	if (ctx->key && ctx->value)
		counter_add(waiting);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
