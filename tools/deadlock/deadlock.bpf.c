// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "stackwalk.bpf.h"
#include "task.bpf.h"

#define MUTEXES_MAX 16 /* that a thread holds at once */
#define NO_SLOT MUTEXES_MAX
#define EOWNERDEAD 130 /* a robust mutex is acquired; its owner has ended */

/* Functions of the user, whose result is unknown: they always acquire the mutex. */
const volatile bool targ_custom = false;

enum kind {
	ORDER, /* a thread acquires a mutex while it holds another one */
	END, /* of a process */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum kind *kind_type __attribute__((unused));

struct call {
	__u64 mutex;
	__u32 slot;
	__u32 pad;
};

#include "usercall.bpf.h"

/* A mutex is identified by its address and by how often that has been initialized or destroyed. */
struct mutex_id {
	__u64 address;
	__u32 generation;
	__u32 depth; /* of a recursive mutex that a thread holds; otherwise 0 */
};

/* The mutexes that a thread holds. The address is 0 in a free slot. */
struct thread {
	struct mutex_id held[MUTEXES_MAX];
	struct mutex_id to; /* being acquired */
	__u64 unlock_frame; /* of the last call to release a mutex */
	__u64 unlock_entry;
	__u32 space; /* address space, which changes with exec */
	__u32 pad;
};

/* An entry exists until the thread ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

static const struct thread thread_zero = {};

/* The stack of the call that acquires or has acquired the mutex in a slot. */
struct slot_key {
	__u32 tid;
	__u32 slot;
};

struct slot_stack {
	__u32 size;
	__u32 pad;
	char bytes[STACK_MAX_BYTES];
};

/* Entries are reused for other mutexes, and deleted when the thread ends. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct slot_key);
	__type(value, struct slot_stack);
} slot_stacks SEC(".maps");

/* Zero initializer of an entry, never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_stack);
} slot_stack_zero SEC(".maps");

/*
 * Orders of mutexes that were sent to user space. If an entry is evicted, it is sent again, which
 * user space expects.
 */
struct order_key {
	struct mutex_id from;
	struct mutex_id to;
	__u64 held; /* hash of all mutexes that the thread holds */
	__u32 pid;
	__u32 space;
};

struct order {
	__u32 tid; /* the first thread with this order */
	__u32 many; /* another thread has it, too */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct order_key);
	__type(value, struct order);
} orders SEC(".maps");

/* How often a mutex was initialized or destroyed, of mutexes in orders. */
struct generation_key {
	__u64 address;
	__u32 pid;
	__u32 space;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct generation_key);
	__type(value, __u32);
} generations SEC(".maps");

struct event {
	struct task_info task;
	struct mutex_id from; /* held */
	struct mutex_id to; /* being acquired */
	struct mutex_id held[MUTEXES_MAX]; /* with from; the address is 0 if there is none */
	__u32 space;
	__u32 kind;
	__u32 to_size; /* bytes of the stacks, which follow */
	__u32 from_size;
};

struct scratch {
	struct event event;
	char stacks[2 * STACK_MAX_BYTES];
};

#include "scratch.bpf.h"

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline __u32 this_tid(void)
{
	return bpf_get_current_pid_tgid();
}

static __always_inline __u32 this_pid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

/* The state of the current thread, which begins anew with an exec. */
static __always_inline struct thread *thread_get(void)
{
	__u32 tid = this_tid(), space = stack_space(this_pid());
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);

	if (t && t->space == space)
		return t;
	bpf_map_update_elem(&threads, &tid, &thread_zero, BPF_ANY);
	t = bpf_map_lookup_elem(&threads, &tid);
	if (t)
		t->space = space;
	else
		lost_add(map_full);
	return t;
}

/*
 * The slot of a mutex that the current thread holds, or with address 0 a free slot; NO_SLOT if there
 * is none. A global function, because the verifier checks these once and separately: otherwise it
 * would check all following code for each slot.
 */
__noinline __u32 find_slot(__u64 address)
{
	__u32 tid = this_tid();
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);

	if (!t)
		return NO_SLOT;
	for (__u32 i = 0; i < MUTEXES_MAX; i++)
		if (t->held[i].address == address)
			return i;
	return NO_SLOT;
}

static __always_inline __u32 generation_of(__u64 address, __u32 space)
{
	struct generation_key key = { .address = address, .pid = this_pid(), .space = space };
	__u32 *generation = bpf_map_lookup_elem(&generations, &key);

	return generation ? *generation : 0;
}

/* Mutexes in orders have an entry, so that init and destroy count. */
static __always_inline void generation_keep(const struct mutex_id *id, __u32 space)
{
	struct generation_key key = { .address = id->address, .pid = this_pid(), .space = space };

	bpf_map_update_elem(&generations, &key, &id->generation, BPF_NOEXIST);
}

static __always_inline void slot_stack_save(struct pt_regs *ctx, __u32 slot)
{
	struct slot_key key = { .tid = this_tid(), .slot = slot };
	struct slot_stack *s = bpf_map_lookup_elem(&slot_stacks, &key), *none;
	__u32 zero = 0;

	if (!s) {
		none = bpf_map_lookup_elem(&slot_stack_zero, &zero);
		if (none)
			bpf_map_update_elem(&slot_stacks, &key, none, BPF_ANY);
		s = bpf_map_lookup_elem(&slot_stacks, &key);
	}
	if (s)
		s->size = user_stack_read(ctx, s->bytes, user_caller_at_entry(ctx));
	else
		lost_add(map_full);
}

static __always_inline __u32 slot_stack_copy(char *dst, __u32 slot)
{
	struct slot_key key = { .tid = this_tid(), .slot = slot };
	struct slot_stack *s = bpf_map_lookup_elem(&slot_stacks, &key);
	__u32 size = s ? s->size : 0;

	barrier_var(size);
	if (!s || size > STACK_MAX_BYTES || bpf_probe_read_kernel(dst, size, s->bytes))
		return 0;
	return size;
}

/* The index tells the verifier that it is in the array. */
static __always_inline struct mutex_id *held_at(struct thread *t, __u64 slot)
{
	barrier_var(slot);
	return &t->held[slot & (MUTEXES_MAX - 1)];
}

#include "orders.bpf.h"

/* The slot that a call uses: that of the mutex if the thread holds it, otherwise a free one. */
static __always_inline __u32 slot_get(__u64 mutex, bool *is_held)
{
	__u32 slot = find_slot(mutex);

	*is_held = slot < MUTEXES_MAX;
	if (!*is_held)
		slot = find_slot(0);
	if (slot >= MUTEXES_MAX)
		lost_add(map_full);
	return slot;
}

/*
 * At the entry, because the call does not return if the thread is deadlocked. A thread that locks a
 * recursive mutex again does not wait.
 */
static __always_inline int lock_begin(struct pt_regs *ctx, __u64 mutex, bool waits)
{
	struct call *c;
	struct thread *t;
	bool is_held;

	if (!mutex || !task_current_wanted())
		return 0;
	c = user_call_begin(ctx);
	t = c ? thread_get() : NULL;
	if (!t)
		return 0;
	t->unlock_frame = 0;
	c->mutex = mutex;
	c->slot = slot_get(mutex, &is_held);
	if (is_held || c->slot >= MUTEXES_MAX)
		return 0;
	slot_stack_save(ctx, c->slot);
	if (waits)
		orders_add(ctx, t, mutex, c->slot);
	return 0;
}

static __always_inline void held_set(struct thread *t, __u32 slot, __u64 mutex)
{
	struct mutex_id *held = held_at(t, slot);

	if (slot >= MUTEXES_MAX)
		return;
	if (held->address == mutex) {
		held->depth++;
		return;
	}
	held->generation = generation_of(mutex, t->space);
	held->depth = 1;
	held->address = mutex;
}

/* A function can be a wrapper that calls another one of the functions. */
static __always_inline bool is_inner(const struct call *call)
{
	struct calls *all = calls_find(this_tid());

	if (!all)
		return false;
	for (int i = 0; i < CALL_DEPTH_MAX; i++)
		if (all->frame[i] && all->call[i].mutex == call->mutex)
			return true;
	return false;
}

static __always_inline int lock_end(struct pt_regs *ctx)
{
	__s32 ret = PT_REGS_RC(ctx);
	struct thread *t;
	struct call call;
	bool nested;

	if (!user_call_end(ctx, &call, &nested) || (nested && is_inner(&call)))
		return 0;
	if (!targ_custom && ret && ret != EOWNERDEAD)
		return 0;
	t = thread_get();
	if (t)
		held_set(t, call.slot, call.mutex);
	return 0;
}

/*
 * The functions of libc before 2.34 jump to those of libpthread, so two programs run for one call:
 * their frame is the same, but not the function.
 */
static __always_inline bool is_same_unlock(struct pt_regs *ctx, struct thread *t)
{
	__u64 frame = frame_at_begin(ctx), entry = PT_REGS_IP(ctx);
	bool is_same = t->unlock_frame == frame && t->unlock_entry != entry;

	t->unlock_frame = frame;
	t->unlock_entry = entry;
	return is_same;
}

static __always_inline int handle_unlock(struct pt_regs *ctx, __u64 mutex)
{
	__u32 tid = this_tid(), slot;
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);
	struct mutex_id *held;

	if (!t || !mutex || is_same_unlock(ctx, t))
		return 0;
	slot = find_slot(mutex);
	if (slot >= MUTEXES_MAX)
		return 0;
	held = held_at(t, slot);
	if (held->depth > 1)
		held->depth--;
	else
		__builtin_memset(held, 0, sizeof(*held));
	return 0;
}

/*
 * A wait for a condition releases the mutex and acquires it again, while the thread holds others. In
 * between it calls nothing, so the mutex remains in its slot.
 */
static __always_inline int handle_wait(struct pt_regs *ctx, __u64 mutex)
{
	struct thread *t;
	bool is_held;
	__u32 slot;

	if (!mutex || !task_current_wanted())
		return 0;
	t = thread_get();
	if (!t)
		return 0;
	slot = slot_get(mutex, &is_held);
	if (slot >= MUTEXES_MAX)
		return 0;
	if (!is_held) /* locked before the tool started */
		held_set(t, slot, mutex);
	slot_stack_save(ctx, slot);
	orders_add(ctx, t, mutex, slot);
	return 0;
}

/* Init or destroy: another mutex follows at the address. */
static __always_inline int handle_renewal(__u64 mutex)
{
	struct generation_key key = { .address = mutex, .pid = this_pid() };
	__u32 *generation;

	if (!task_current_wanted())
		return 0;
	key.space = stack_space(key.pid);
	generation = bpf_map_lookup_elem(&generations, &key);
	if (generation)
		__sync_fetch_and_add(generation, 1);
	return 0;
}

#define LOCKS "pthread_mutex_lock,pthread_mutex_trylock,pthread_mutex_timedlock,pthread_mutex_clocklock"

SEC("uretprobe/libc:" LOCKS)
int mutex__uprobe__return(struct pt_regs *ctx)
{
	return lock_end(ctx);
}

SEC("uprobe/libc:pthread_mutex_lock")
int mutex__uprobe__lock(struct pt_regs *ctx)
{
	return lock_begin(ctx, PT_REGS_PARM1(ctx), true);
}

SEC("uprobe/libc:pthread_mutex_trylock,pthread_mutex_timedlock,pthread_mutex_clocklock")
int mutex__uprobe__try(struct pt_regs *ctx)
{
	return lock_begin(ctx, PT_REGS_PARM1(ctx), false);
}

SEC("uprobe/libc:pthread_mutex_unlock")
int mutex__uprobe__unlock(struct pt_regs *ctx)
{
	return handle_unlock(ctx, PT_REGS_PARM1(ctx));
}

SEC("uprobe/libc:pthread_mutex_init,pthread_mutex_destroy")
int mutex__uprobe__renew(struct pt_regs *ctx)
{
	return handle_renewal(PT_REGS_PARM1(ctx));
}

SEC("uprobe/libc:pthread_cond_wait,pthread_cond_timedwait,pthread_cond_clockwait")
int mutex__uprobe__wait(struct pt_regs *ctx)
{
	return handle_wait(ctx, PT_REGS_PARM2(ctx));
}

/* User space drops the orders of a process that has ended. */
static __always_inline int handle_exit(void *ctx)
{
	struct slot_key key = { .tid = this_tid() };
	struct event e = { .kind = END };

	if (bpf_map_lookup_elem(&threads, &key.tid)) {
		bpf_map_delete_elem(&threads, &key.tid);
		for (__u32 i = 0; i < MUTEXES_MAX; i++) {
			key.slot = i;
			bpf_map_delete_elem(&slot_stacks, &key);
		}
	}
	if (key.tid != this_pid() || !task_current_wanted())
		return 0;
	task_info_current(&e.task);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int exited__btf(void *ctx)
{
	return handle_exit(ctx);
}

SEC("raw_tp/sched_process_exit")
int exited__raw(void *ctx)
{
	return handle_exit(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
