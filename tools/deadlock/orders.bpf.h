/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __ORDERS_BPF_H
#define __ORDERS_BPF_H

#include "loop.bpf.h"

/* The orders in which a thread acquires mutexes: which ones are new, and sending them to user space. */

/* Sends the order of a mutex that the thread holds and the one that it acquires. */
static __noinline int order_send(struct pt_regs *ctx, __u32 from, __u32 to)
{
	__u32 tid = this_tid(), size;
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);
	struct scratch *s = t ? scratch_begin() : NULL;

	if (!t || !s)
		return 0;
	task_info_current(&s->event.task);
	s->event.from = *held_at(t, from);
	s->event.to = t->to;
	s->event.space = t->space;
	__builtin_memcpy(s->event.held, t->held, sizeof(t->held));
	size = slot_stack_copy(s->stacks, to);
	if (size <= STACK_MAX_BYTES) {
		s->event.to_size = size;
		s->event.from_size = slot_stack_copy(s->stacks + size, from);
		size += s->event.from_size;
	}
	size += sizeof(s->event);
	barrier_var(size);
	if (size <= sizeof(*s))
		event_send(ctx, s, size, s->event.task.time_ns);
	scratch_end();
	return 0;
}

/* Reports whether user space does not have an order yet, or has it only from another thread. */
static __always_inline bool order_is_new(const struct order_key *key)
{
	struct order *known = bpf_map_lookup_elem(&orders, key);
	struct order first = { .tid = this_tid() };

	if (!known) {
		bpf_map_update_elem(&orders, key, &first, BPF_ANY);
		generation_keep(&key->from, key->space);
		generation_keep(&key->to, key->space);
		return true;
	}
	if (known->many || known->tid == first.tid)
		return false;
	known->many = 1;
	return true;
}

static __always_inline __u64 held_hash(struct thread *t)
{
	__u64 hash = 0;

	for (int i = 0; i < MUTEXES_MAX; i++) {
		__u64 x = t->held[i].address + t->held[i].generation;

		x *= 0x9e3779b97f4a7c15ULL;
		hash += x ^ (x >> 31);
	}
	return hash;
}

struct orders_check {
	struct thread *thread;
	struct order_key key;
	__u32 slot; /* of the mutex that the thread acquires */
	__u32 slots; /* of the mutexes whose order with it is new, as bits */
};

static __always_inline bool order_check(void *state, __u32 i)
{
	struct orders_check *c = state;
	const struct mutex_id *held = held_at(c->thread, i);

	if (i == c->slot || !held->address)
		return true;
	c->key.from.address = held->address;
	c->key.from.generation = held->generation;
	if (order_is_new(&c->key))
		c->slots |= 1 << i;
	return true;
}

/*
 * The slots of the mutexes whose order with the one that the thread acquires is new, as bits. slot
 * is that of the latter. A global function, as find_slot().
 */
__noinline __u32 orders_new(__u32 slot)
{
	__u32 tid = this_tid();
	struct orders_check c = { .thread = bpf_map_lookup_elem(&threads, &tid), .slot = slot };

	if (!c.thread)
		return 0;
	c.key.to = c.thread->to;
	c.key.held = held_hash(c.thread);
	c.key.pid = this_pid();
	c.key.space = c.thread->space;
	loop_while(MUTEXES_MAX, order_check, &c);
	return c.slots;
}

struct orders_sending {
	struct pt_regs *ctx;
	__u32 slot; /* of the mutex that the thread acquires */
	__u32 slots; /* of mutexes whose order with it is sent, as bits */
};

static __always_inline bool order_send_next(void *state, __u32 i)
{
	struct orders_sending *s = state;

	if (s->slots & (1 << i))
		order_send(s->ctx, i, s->slot);
	return true;
}

static __always_inline void orders_add(struct pt_regs *ctx, struct thread *t, __u64 mutex, __u32 slot)
{
	struct orders_sending s = { .ctx = ctx, .slot = slot };

	t->to.address = mutex;
	t->to.generation = generation_of(mutex, t->space);
	s.slots = orders_new(slot);
	if (s.slots)
		loop_while(MUTEXES_MAX, order_send_next, &s);
}

#endif
