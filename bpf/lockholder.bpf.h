/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __LOCKHOLDER_BPF_H
#define __LOCKHOLDER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "futexholder.bpf.h"
#include "syscall.bpf.h"

/*
 * The thread that holds the lock that the current task is about to sleep for: a futex, or a mutex or
 * rw_semaphore of the kernel between the tracepoints contention_begin and contention_end (5.19).
 *
 * User space removes lock_holder_read(), its only entry, from runs without want_holder (probe.Cut).
 */
const volatile bool want_holder = false;

/*
 * A tool with the holder's stack reads it when the holder wakes the task that waits: see
 * lock_released_to().
 */
const volatile bool want_holder_stack = false;

struct lock_holder {
	__u32 tid; /* 0 if unknown */
	__u32 pid;
	char comm[TASK_COMM_LEN];
};

/* Flags of contention_begin, include/trace/events/lock.h. */
enum {
	CONTENTION_READ = 2,
	CONTENTION_WRITE = 4,
	CONTENTION_MUTEX = 32,
};

#if defined(__TARGET_ARCH_x86)
#define NR_futex_native 202
#else
#define NR_futex_native 98
#endif

enum { /* include/uapi/linux/futex.h */
	FUTEX_OP_WAIT = 0,
	FUTEX_OP_LOCK_PI = 6,
	FUTEX_OP_WAIT_BITSET = 9,
	FUTEX_OP_LOCK_PI2 = 13,
	FUTEX_OP_MASK = 127, /* without the flags */
};

struct lock_contended {
	__u64 lock;
	__u32 flags;
	__u32 pad;
};

/* By thread. Allocated in advance: entries are added under locks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, struct lock_contended);
} locks_contended SEC(".maps");

/* The lower bits of the owner of a mutex, and of a rw_semaphore. With the lowest one readers hold it. */
#define LOCK_OWNER_FLAGS 7ULL
#define LOCK_READER_OWNED 1ULL

static __always_inline struct task_struct *kernel_lock_holder(const struct lock_contended *c)
{
	__u64 owner = 0;

	if (c->flags == CONTENTION_MUTEX) {
		bpf_probe_read_kernel(&owner, sizeof(owner),
				      (void *)c->lock + bpf_core_field_offset(struct mutex, owner));
		return (void *)(owner & ~LOCK_OWNER_FLAGS);
	}
	if (c->flags != CONTENTION_READ && c->flags != CONTENTION_WRITE)
		return NULL;
	bpf_probe_read_kernel(&owner, sizeof(owner),
			      (void *)c->lock + bpf_core_field_offset(struct rw_semaphore, owner));
	return owner & LOCK_READER_OWNED ? NULL : (void *)(owner & ~LOCK_OWNER_FLAGS);
}

/* The holder of the futex that the current system call waits for. */
static __always_inline struct task_struct *futex_call_holder(void)
{
	struct pt_regs *regs = syscall_regs();
	__u32 op;

	if (!regs || syscall_nr(regs) != NR_futex_native || syscall_is_compat(regs))
		return NULL;
	op = syscall_arg(regs, 1, false) & FUTEX_OP_MASK;
	if (op != FUTEX_OP_WAIT && op != FUTEX_OP_WAIT_BITSET && op != FUTEX_OP_LOCK_PI && op != FUTEX_OP_LOCK_PI2)
		return NULL;
	return (void *)futex_holder(syscall_arg(regs, 0, false), syscall_arg(regs, 2, false),
				    op == FUTEX_OP_LOCK_PI || op == FUTEX_OP_LOCK_PI2);
}

static __noinline int lock_holder_read(struct lock_holder *holder)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct lock_contended *c = bpf_map_lookup_elem(&locks_contended, &tid);
	struct task_struct *task = c ? kernel_lock_holder(c) : futex_call_holder();

	holder->tid = 0;
	holder->pid = 0;
	__builtin_memset(holder->comm, 0, sizeof(holder->comm));
	if (!task || task == task_current())
		return 0;
	holder->tid = BPF_CORE_READ(task, pid);
	holder->pid = BPF_CORE_READ(task, tgid);
	BPF_CORE_READ_STR_INTO(&holder->comm, task, comm);
	return 0;
}

/* Whether the current task is in a call of futex(2) that does not wait. In an interrupt it is in none. */
static __always_inline bool futex_call_wakes(void)
{
	struct pt_regs *regs = syscall_regs();
	__u32 op;

	if (!regs || syscall_nr(regs) != NR_futex_native || syscall_is_compat(regs))
		return false;
	op = syscall_arg(regs, 1, false) & FUTEX_OP_MASK;
	return op != FUTEX_OP_WAIT && op != FUTEX_OP_WAIT_BITSET && op != FUTEX_OP_LOCK_PI && op != FUTEX_OP_LOCK_PI2;
}

/*
 * Whether the current task, which wakes p, is the holder of the lock that p waits for and releases it.
 * Nothing else wakes a task that waits for a lock of the kernel, except for a fatal signal. A wait for
 * a futex also ends by other signals, or a timer that interrupts the holder.
 */
static __always_inline bool lock_released_to(struct task_struct *p, const struct lock_holder *holder)
{
	__u32 me = bpf_get_current_pid_tgid(), waiter = BPF_CORE_READ(p, pid);

	if (!holder->tid || holder->tid != me)
		return false;
	return bpf_map_lookup_elem(&locks_contended, &waiter) || futex_call_wakes();
}

static __always_inline int lock_contention_begin(__u64 lock, __u32 flags)
{
	struct lock_contended c = { .lock = lock, .flags = flags };
	__u32 tid = bpf_get_current_pid_tgid();

	if (flags == CONTENTION_MUTEX || flags == CONTENTION_READ || flags == CONTENTION_WRITE)
		bpf_map_update_elem(&locks_contended, &tid, &c, BPF_ANY);
	return 0;
}

static __always_inline int lock_contention_end(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&locks_contended, &tid);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention__btf__done)
{
	return lock_contention_end();
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention__btf__start, void *lock, unsigned int flags)
{
	return lock_contention_begin((__u64)lock, flags);
}

SEC("raw_tp/contention_end")
int BPF_PROG(contention__raw__done)
{
	return lock_contention_end();
}

SEC("raw_tp/contention_begin")
int BPF_PROG(contention__raw__start, void *lock, unsigned int flags)
{
	return lock_contention_begin((__u64)lock, flags);
}

#endif
