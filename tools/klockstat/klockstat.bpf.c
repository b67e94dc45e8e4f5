// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "lost.bpf.h"
#include "map.bpf.h"
#include "task.bpf.h"

/* Group rows by these; the other members of the key are 0. */
const volatile bool by_lock = false;
const volatile bool by_thread = false;
/* Only waits for this lock; 0 for all. */
const volatile __u64 targ_lock = 0;
/* Group rows by this number of functions above the caller, and keep their addresses. */
const volatile __u32 targ_callers = 0;
#define CALLERS_MAX 15
#define LOCK_CODE_MAX 64

/* Addresses of the code of locks: begin and end of each range. There are none if they are unknown. */
const volatile __u64 lock_code[2 * LOCK_CODE_MAX] = {};
const volatile __u32 lock_code_nr = 0;

struct table_key {
	__u64 caller; /* return address in the function that acquires the lock */
	__u64 lock; /* if by_lock */
	__u64 callers; /* hash of the return addresses above it, if targ_callers */
	__u32 flags; /* of contention_begin */
	__u32 pid; /* if by_thread, as are the next ones */
	__u32 tid;
	char comm[TASK_COMM_LEN];
	__u32 pad;
};

struct table_value {
	__u64 count;
	__u64 total_ns;
	__u64 max_ns; /* the largest, not a sum */
	__u64 callers[CALLERS_MAX]; /* those of the key, innermost first; 0 after the last one */
};

#include "table.bpf.h"

enum { /* include/trace/events/lock.h */
	LCB_F_SPIN = 1,
	LCB_F_MUTEX = 32,
};

/* Frames that are read: to find the caller, and with targ_callers also those above it. */
#define FRAMES_CALLER 24
#define FRAMES_MAX 32
#define SPINS_MAX 4

struct wait {
	__u64 lock;
	__u64 since_ns; /* CLOCK_MONOTONIC */
	__u32 flags;
	__u32 wanted; /* by the filters */
};

/*
 * The locks that a CPU spins for, the outermost first: an interrupt can spin for another one. A
 * thread that spins is not preempted, except for a mutex.
 */
struct spins {
	struct wait waits[SPINS_MAX];
	__u32 depth;
	__u32 pad;
	__u64 frames[FRAMES_MAX]; /* scratch memory, as is the next one */
	__u64 callers[CALLERS_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spins);
} spins SEC(".maps");

/* The other waits: threads that sleep. An entry exists during the wait. */
struct sleep_key {
	__u64 lock;
	__u64 task;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct sleep_key);
	__type(value, struct wait);
} sleeps SEC(".maps");

static __always_inline struct spins *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&spins, &zero);
}

/* The mask tells the verifier that the index is in the array. */
static __always_inline struct wait *spin_at(struct spins *cpu, __u64 i)
{
	barrier_var(i);
	return &cpu->waits[i & (SPINS_MAX - 1)];
}

/* Counts the waits from this index on as lost, and removes them: their ends were not observed. */
static __always_inline void spins_drop(struct spins *cpu, __u32 from)
{
	for (__u32 i = 0; i < SPINS_MAX; i++) {
		if (i >= from && i < cpu->depth && cpu->waits[i].wanted)
			lost_add(unobserved);
	}
	cpu->depth = from;
}

/* Deeper nesting than the array allows does not occur: task, softirq, interrupt. */
static __always_inline void spin_begin(const struct wait *w)
{
	struct spins *cpu = this_cpu();

	if (!cpu)
		return;
	if (cpu->depth >= SPINS_MAX)
		spins_drop(cpu, 0);
	*spin_at(cpu, cpu->depth) = *w;
	cpu->depth++;
}

/* Removes the innermost wait for the lock, and those in it. */
static __always_inline bool spin_end(struct spins *cpu, __u64 lock, struct wait *w)
{
	__u32 found = SPINS_MAX;

	for (__u32 i = 0; i < SPINS_MAX; i++) {
		if (i < cpu->depth && cpu->waits[i].lock == lock)
			found = i;
	}
	if (found >= SPINS_MAX)
		return false;
	spins_drop(cpu, found + 1 < cpu->depth ? found + 1 : cpu->depth);
	*w = *spin_at(cpu, found);
	cpu->depth = found;
	return true;
}

/* A mutex is begun twice if the thread first spins and then sleeps: that is one wait. */
static __always_inline void sleep_begin(const struct wait *w)
{
	struct sleep_key key = { .lock = w->lock, .task = bpf_get_current_task() };

	if (!bpf_map_update_elem(&sleeps, &key, w, BPF_NOEXIST))
		return;
	if (!bpf_map_lookup_elem(&sleeps, &key))
		lost_add(map_full);
}

static __always_inline bool sleep_end(__u64 lock, struct wait *w)
{
	struct sleep_key key = { .lock = lock, .task = bpf_get_current_task() };
	struct wait *entry = bpf_map_lookup_elem(&sleeps, &key);

	if (!entry)
		return false;
	*w = *entry;
	bpf_map_delete_elem(&sleeps, &key);
	return true;
}

static __always_inline int handle_begin(__u64 lock, __u32 flags)
{
	struct wait w = { .lock = lock, .flags = flags };
	bool spins = (flags & LCB_F_SPIN) && !(flags & LCB_F_MUTEX);

	w.wanted = (!targ_lock || lock == targ_lock) && task_current_wanted();
	if (!w.wanted && !spins)
		return 0;
	w.since_ns = bpf_ktime_get_ns();
	if (spins)
		spin_begin(&w);
	else
		sleep_begin(&w);
	return 0;
}

/*
 * A global function, because the verifier checks these once and separately: otherwise it would check
 * all following code for each range of each frame.
 */
__noinline int is_lock_code(__u64 address)
{
	for (int i = 0; i < LOCK_CODE_MAX; i++) {
		if (i >= lock_code_nr)
			break;
		if (address >= lock_code[2 * i] && address < lock_code[2 * i + 1])
			return 1;
	}
	return 0;
}

static __always_inline long read_frames(void *ctx, struct spins *cpu)
{
	if (targ_callers)
		return bpf_get_stack(ctx, cpu->frames, sizeof(cpu->frames), 0);
	return bpf_get_stack(ctx, cpu->frames, FRAMES_CALLER * sizeof(cpu->frames[0]), 0);
}

/*
 * The index of the function that acquires the lock: the first one outside the code of locks, after
 * the first one inside it. The functions before are those of tracing. FRAMES_MAX if it is unknown.
 */
static __always_inline __u32 find_caller(void *ctx, struct spins *cpu)
{
	long size = read_frames(ctx, cpu);
	bool inside = !lock_code_nr;

	for (int i = 0; i < FRAMES_MAX; i++) {
		__u64 address = cpu->frames[i];

		if ((i + 1) * (long)sizeof(address) > size)
			break;
		if (is_lock_code(address))
			inside = true;
		else if (inside)
			return i;
	}
	return FRAMES_MAX;
}

/*
 * Copies the frames from this index on to callers, and returns their hash. bpf_get_stack() fills what
 * is above the outermost frame with zeros. A global function, as is_lock_code().
 */
__noinline __u64 read_callers(__u32 from)
{
	struct spins *cpu = this_cpu();
	__u64 hash = 0;

	if (!cpu)
		return 0;
	for (__u32 i = 0; i < CALLERS_MAX; i++) {
		__u32 at = from + i;
		__u64 address = 0;

		if (i < targ_callers && at < FRAMES_MAX)
			address = cpu->frames[at & (FRAMES_MAX - 1)];
		cpu->callers[i] = address;
		hash = (hash ^ address) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	return hash;
}

/* Sets the caller and those above it. */
static __always_inline void key_callers(void *ctx, struct spins *cpu, struct table_key *key)
{
	__u32 at = find_caller(ctx, cpu);

	if (at >= FRAMES_MAX)
		return;
	barrier_var(at);
	key->caller = cpu->frames[at & (FRAMES_MAX - 1)];
	if (targ_callers)
		key->callers = read_callers(at + 1);
}

static __always_inline void count_wait(void *ctx, struct spins *cpu, const struct wait *w, __u64 ns)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct table_key key = { .flags = w->flags };
	struct table_value *value;

	key_callers(ctx, cpu, &key);
	if (by_lock)
		key.lock = w->lock;
	if (by_thread) {
		key.pid = id >> 32;
		key.tid = id;
		bpf_get_current_comm(key.comm, sizeof(key.comm));
	}
	value = table_find(&key);
	if (!value)
		return;
	if (key.callers && !value->count)
		__builtin_memcpy(value->callers, cpu->callers, sizeof(value->callers));
	table_add(value, count, 1);
	table_add(value, total_ns, ns);
	if (ns > value->max_ns)
		value->max_ns = ns;
}

/* A wait that began before the tool started has no begin, and is not counted. */
static __always_inline int handle_end(void *ctx, __u64 lock)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct spins *cpu = this_cpu();
	struct wait w = {};

	if (!cpu)
		return 0;
	if (!spin_end(cpu, lock, &w) && !sleep_end(lock, &w))
		return 0;
	if (w.wanted)
		count_wait(ctx, cpu, &w, now_ns - w.since_ns);
	return 0;
}

/*
 * Attached in alphabetical order, so that the end of each observed begin is observed. The state of a
 * CPU must not be used by two tasks at once.
 */
SEC("tp_btf/contention_end")
int BPF_PROG(contention__btf__done, void *lock)
{
	return NOT_PREEMPTED(handle_end(ctx, (__u64)lock));
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention__btf__start, void *lock, unsigned int flags)
{
	return NOT_PREEMPTED(handle_begin((__u64)lock, flags));
}

SEC("raw_tp/contention_end")
int BPF_PROG(contention__raw__done, void *lock)
{
	return NOT_PREEMPTED(handle_end(ctx, (__u64)lock));
}

SEC("raw_tp/contention_begin")
int BPF_PROG(contention__raw__start, void *lock, unsigned int flags)
{
	return NOT_PREEMPTED(handle_begin((__u64)lock, flags));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
