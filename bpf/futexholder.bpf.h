/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FUTEXHOLDER_BPF_H
#define __FUTEXHOLDER_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "task.bpf.h"

/*
 * The thread that holds the lock that the current task is about to wait for in futex(2). It is known
 * only if memory at the futex says so in a known format, and if that names another thread of the
 * process. Locks of 32-bit tasks are unknown.
 */

/* Threads of a process that are searched. */
#define HOLDER_THREADS_MAX 512

#define HOLDER_TID_MASK 0x3fffffff

/* pthread_mutex_t of glibc, 64-bit. */
struct holder_mutex {
	__u32 lock; /* the futex: 2 if there are waiters; of a robust mutex the TID */
	__u32 count;
	__u32 owner;
	__u32 users;
	__u32 kind;
};

#define HOLDER_MUTEX_WAITERS 2
/* Bits of kind: type (3), robust (16), priority inheritance (32), shared (128), elision (256, 512). */
#define HOLDER_MUTEX_ROBUST 16
#define HOLDER_MUTEX_KINDS (3 | 16 | 32 | 128 | 256 | 512)

/* pthread_rwlock_t of glibc, 64-bit, from 2.25 on. */
struct holder_rwlock {
	__u32 readers;
	__u32 writers;
	__u32 phase_futex;
	__u32 writers_futex;
	__u32 pad[2];
	__u32 writer;
	__u32 shared;
};

/* Bits of readers: a writer has the lock. Value of both futexes if there are waiters for it. */
#define HOLDER_WRITE_LOCKED 3
#define HOLDER_WRITER_WAITED 3

static __always_inline __u32 upid_nr(struct upid *upid)
{
	return BPF_CORE_READ(upid, nr);
}

/* The thread of the current process with this ID in its own PID namespace, 0 if there is none. */
static __noinline __u64 holder_find(__u32 tid)
{
	struct task_struct *task = task_current(), *me = task;
	struct signal_struct *signal = BPF_CORE_READ(task, signal);
	struct list_head *head = __builtin_preserve_access_index(&signal->thread_head);
	struct list_head *at = BPF_CORE_READ(head, next);

	for (int i = 0; i < HOLDER_THREADS_MAX && at && at != head; i++) {
		struct pid *pid;
		__u32 level;

		task = (void *)at - bpf_core_field_offset(struct task_struct, thread_node);
		pid = BPF_CORE_READ(task, thread_pid);
		level = BPF_CORE_READ(pid, level);
		if (task != me && pid && upid_nr(pid_upid(pid, level)) == tid)
			return (__u64)task;
		at = BPF_CORE_READ(at, next);
	}
	return 0;
}

/* The owner of a mutex of glibc at this address, 0 if there is none, or it is no mutex. */
static __always_inline __u32 holder_of_mutex(__u64 lock, __u32 value)
{
	struct holder_mutex mutex = {};

	if (bpf_probe_read_user(&mutex, sizeof(mutex), (void *)lock))
		return 0;
	if (!mutex.users || mutex.kind & ~HOLDER_MUTEX_KINDS || mutex.lock != value)
		return 0;
	if (mutex.kind & HOLDER_MUTEX_ROBUST)
		return (mutex.lock & HOLDER_TID_MASK) == mutex.owner ? mutex.owner : 0;
	return value == HOLDER_MUTEX_WAITERS ? mutex.owner : 0;
}

/* The same for the writer of a read-write lock with the futex at this offset. */
static __always_inline __u32 holder_of_rwlock(__u64 lock, __u32 offset, __u32 value)
{
	struct holder_rwlock rwlock = {};

	if (value != HOLDER_WRITER_WAITED ||
	    bpf_probe_read_user(&rwlock, sizeof(rwlock), (void *)lock - offset))
		return 0;
	if ((rwlock.readers & HOLDER_WRITE_LOCKED) != HOLDER_WRITE_LOCKED || (rwlock.shared & 0xff) > 1)
		return 0;
	return rwlock.writer;
}

/*
 * The address of the task that holds the lock, 0 if it is unknown. value is what the futex is expected
 * to contain; with is_pi the kernel's own format applies, with the TID in the futex.
 */
static __noinline __u64 futex_holder(__u64 lock, __u32 value, bool is_pi)
{
	__u32 tid = 0;

	if (is_pi) {
		bpf_probe_read_user(&tid, sizeof(tid), (void *)lock);
		tid &= HOLDER_TID_MASK;
	} else {
		tid = holder_of_mutex(lock, value);
		if (!tid)
			tid = holder_of_rwlock(lock, offsetof(struct holder_rwlock, phase_futex), value);
		if (!tid)
			tid = holder_of_rwlock(lock, offsetof(struct holder_rwlock, writers_futex), value);
	}
	return tid ? holder_find(tid) : 0;
}

#endif
