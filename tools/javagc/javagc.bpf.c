/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "usdt.bpf.h"

struct counters {
	__u64 no_begin; /* ends of pauses and of pools whose begin was not observed, or is lost */
};

#include "counters.bpf.h"

#define NAME_LEN 48
#define POOLS_MAX 16

/* Only rows of at least this time. */
const volatile __u64 targ_min_ns = 0;

enum what {
	COLLECTION, /* the program is stopped: what -Xlog:gc logs as a pause */
	POOL, /* the effect of a collection on one memory pool */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum what *what_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u64 used_before;
	__u64 used; /* this and the following are at the end */
	__u64 committed;
	__s64 max; /* -1 if unlimited */
	__u32 cpu;
	__u8 what;
	__u8 full; /* the virtual machine was asked for a collection of the whole heap */
	__u8 manager_len;
	__u8 pool_len;
	char manager[NAME_LEN];
	char pool[NAME_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

struct pool {
	__u64 name; /* address of its name, which identifies it; 0 for a free slot */
	__u64 start_ns;
	__u64 used;
};

/*
 * What a thread is collecting. One pause of the program, from gc__begin to gc__end, can be several
 * collections, such as one of the young generation and then one of the whole heap: each is of one memory
 * manager, and affects all of the manager's pools.
 */
struct collecting {
	__u64 start_ns; /* of the pause, or of what is left of it; 0 outside of one */
	__u64 end_ns; /* of a collection that has no event yet, 0 for none */
	__u64 full;
	__u64 manager_len;
	char manager[NAME_LEN]; /* of that collection */
	struct pool pools[POOLS_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, struct collecting);
} collecting SEC(".maps");

static const struct collecting collecting_zero = {};

static __always_inline struct collecting *collecting_find(bool make)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct collecting *c = bpf_map_lookup_elem(&collecting, &tid);

	if (c || !make)
		return c;
	bpf_map_update_elem(&collecting, &tid, &collecting_zero, BPF_NOEXIST);
	c = bpf_map_lookup_elem(&collecting, &tid);
	if (!c)
		lost_add(map_full);
	return c;
}

static __always_inline __u64 number(void *ctx, __u64 n)
{
	__u64 val = 0;

	usdt_arg(ctx, n, &val);
	return val;
}

/* Argument n is a string without a NUL byte, and the next one its length. */
static __always_inline __u8 read_name(void *ctx, __u64 n, char *name)
{
	__u64 len = number(ctx, n + 1);

	if (len > NAME_LEN)
		len = NAME_LEN;
	if (bpf_probe_read_user(name, len, (void *)number(ctx, n)))
		return 0;
	return len;
}

static __always_inline void send(void *ctx, struct event *e, __u64 start_ns, __u64 end_ns)
{
	task_info_current(&e->task);
	if (end_ns)
		e->task.time_ns = end_ns;
	e->delta_ns = e->task.time_ns - start_ns;
	e->cpu = bpf_get_smp_processor_id();
	if (e->delta_ns >= targ_min_ns)
		event_send(ctx, e, sizeof(*e), e->task.time_ns);
}

/* send_collection sends the last collection of a pause so far, as one that ended at end_ns, or now. */
static __always_inline void send_collection(void *ctx, struct collecting *c, __u64 end_ns)
{
	struct event e = { .what = COLLECTION };

	e.full = c->full != 0;
	e.manager_len = c->manager_len;
	__builtin_memcpy(e.manager, c->manager, sizeof(e.manager));
	send(ctx, &e, c->start_ns, end_ns);
	c->start_ns = end_ns;
	c->end_ns = 0;
	c->manager_len = 0;
}

SEC("usdt/libjvm:hotspot:gc__begin")
int gc__usdt__begin(struct pt_regs *ctx)
{
	struct collecting *c;

	if (!task_current_wanted())
		return 0;
	c = collecting_find(true);
	if (!c)
		return 0;
	c->start_ns = bpf_ktime_get_boot_ns();
	c->end_ns = 0;
	c->manager_len = 0;
	c->full = number(ctx, 0);
	return 0;
}

SEC("usdt/libjvm:hotspot:gc__end")
int gc__usdt__end(struct pt_regs *ctx)
{
	struct collecting *c = collecting_find(false);

	if (c && c->start_ns)
		send_collection(ctx, c, 0);
	else if (task_current_wanted())
		counter_add(no_begin);
	return 0;
}

static __always_inline struct pool *pool_find(struct collecting *c, __u64 name)
{
	for (int i = 0; i < POOLS_MAX; i++)
		if (c->pools[i].name == name)
			return &c->pools[i];
	return NULL;
}

/*
 * has_pools reports whether the collection is still in progress: not all of its pools have ended.
 */
static __always_inline bool has_pools(const struct collecting *c)
{
	for (int i = 0; i < POOLS_MAX; i++)
		if (c->pools[i].name)
			return true;
	return false;
}

SEC("usdt/libjvm:hotspot:mem__pool__gc__begin")
int pool__usdt__begin(struct pt_regs *ctx)
{
	__u64 name = number(ctx, 2);
	struct collecting *c;
	struct pool *p;

	if (!name || !task_current_wanted())
		return 0;
	c = collecting_find(true);
	if (!c)
		return 0;
	if (c->start_ns && c->end_ns)
		send_collection(ctx, c, c->end_ns);
	p = pool_find(c, name);
	if (!p)
		p = pool_find(c, 0);
	if (!p) {
		lost_add(map_full);
		return 0;
	}
	p->name = name;
	p->start_ns = bpf_ktime_get_boot_ns();
	p->used = number(ctx, 5);
	return 0;
}

SEC("usdt/libjvm:hotspot:mem__pool__gc__end")
int pool__usdt__end(struct pt_regs *ctx)
{
	struct collecting *c = collecting_find(false);
	struct event e = { .what = POOL };
	__u64 name = number(ctx, 2);
	struct pool *p = c && name ? pool_find(c, name) : NULL;

	if (!p) {
		if (name && task_current_wanted())
			counter_add(no_begin);
		return 0;
	}
	e.used_before = p->used;
	e.used = number(ctx, 5);
	e.committed = number(ctx, 6);
	e.max = number(ctx, 7);
	e.manager_len = read_name(ctx, 0, e.manager);
	e.pool_len = read_name(ctx, 2, e.pool);
	send(ctx, &e, p->start_ns, 0);
	p->name = 0;
	if (c->start_ns && !has_pools(c)) {
		c->end_ns = e.task.time_ns;
		c->manager_len = e.manager_len;
		__builtin_memcpy(c->manager, e.manager, sizeof(c->manager));
	}
	return 0;
}

static __always_inline int forget(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (collecting_find(false))
		bpf_map_delete_elem(&collecting, &tid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended__btf)
{
	return forget();
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(ended__raw)
{
	return forget();
}

SEC("tp/sched/sched_process_exit")
int ended__tp(void *ctx)
{
	return forget();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
