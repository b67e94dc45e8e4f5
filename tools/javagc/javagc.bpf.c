/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "task.bpf.h"
#include "usdt.bpf.h"

#define NAME_LEN 48
#define POOLS_MAX 16

/* Only what took so long at least. */
const volatile __u64 targ_min_ns = 0;

enum what {
	COLLECTION, /* of the whole heap, or of its young part: the program stands still */
	POOL, /* what that meant for one part of the memory */
};

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u64 used_before;
	__u64 used; /* the rest is at the end */
	__u64 committed;
	__s64 max; /* -1 for none */
	__u32 cpu;
	__u8 what;
	__u8 full;
	__u8 manager_len;
	__u8 pool_len;
	char manager[NAME_LEN];
	char pool[NAME_LEN];
};

/* Keeps the type in the object, for it to be compared with Go's. */
const struct event *event_type __attribute__((unused));

struct pool {
	__u64 name; /* its address, by which it is known; 0 for a free place */
	__u64 start_ns;
	__u64 used;
};

/* What a thread is collecting. */
struct collecting {
	__u64 start_ns; /* 0 for nothing */
	__u64 full;
	struct pool pools[POOLS_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, struct collecting);
} collecting SEC(".maps");

static const struct collecting collecting_nothing = {};

static __always_inline struct collecting *collecting_of(bool make)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct collecting *c = bpf_map_lookup_elem(&collecting, &tid);

	if (c || !make)
		return c;
	bpf_map_update_elem(&collecting, &tid, &collecting_nothing, BPF_NOEXIST);
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

/* Argument n is a text without an end, and the next one its length. */
static __always_inline __u8 read_name(void *ctx, __u64 n, char *name)
{
	__u64 len = number(ctx, n + 1);

	if (len > NAME_LEN)
		len = NAME_LEN;
	if (bpf_probe_read_user(name, len, (void *)number(ctx, n)))
		return 0;
	return len;
}

static __always_inline void send(void *ctx, struct event *e, __u64 start_ns)
{
	task_info_current(&e->task);
	e->delta_ns = e->task.time_ns - start_ns;
	e->cpu = bpf_get_smp_processor_id();
	if (e->delta_ns >= targ_min_ns)
		event_send(ctx, e, sizeof(*e), e->task.time_ns);
}

SEC("usdt/libjvm:hotspot:gc__begin")
int gc__usdt__begin(struct pt_regs *ctx)
{
	struct collecting *c;

	if (!task_current_wanted())
		return 0;
	c = collecting_of(true);
	if (!c)
		return 0;
	c->start_ns = bpf_ktime_get_boot_ns();
	c->full = number(ctx, 0);
	return 0;
}

SEC("usdt/libjvm:hotspot:gc__end")
int gc__usdt__end(struct pt_regs *ctx)
{
	struct collecting *c = collecting_of(false);
	struct event e = { .what = COLLECTION };

	if (!c || !c->start_ns)
		return 0;
	e.full = c->full != 0;
	send(ctx, &e, c->start_ns);
	c->start_ns = 0;
	return 0;
}

static __always_inline struct pool *pool_of(struct collecting *c, __u64 name)
{
	for (int i = 0; i < POOLS_MAX; i++)
		if (c->pools[i].name == name)
			return &c->pools[i];
	return NULL;
}

SEC("usdt/libjvm:hotspot:mem__pool__gc__begin")
int pool__usdt__begin(struct pt_regs *ctx)
{
	__u64 name = number(ctx, 2);
	struct collecting *c;
	struct pool *p;

	if (!name || !task_current_wanted())
		return 0;
	c = collecting_of(true);
	if (!c)
		return 0;
	p = pool_of(c, name);
	if (!p)
		p = pool_of(c, 0);
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
	struct collecting *c = collecting_of(false);
	struct event e = { .what = POOL };
	__u64 name = number(ctx, 2);
	struct pool *p = c && name ? pool_of(c, name) : NULL;

	if (!p)
		return 0;
	e.used_before = p->used;
	e.used = number(ctx, 5);
	e.committed = number(ctx, 6);
	e.max = number(ctx, 7);
	e.manager_len = read_name(ctx, 0, e.manager);
	e.pool_len = read_name(ctx, 2, e.pool);
	send(ctx, &e, p->start_ns);
	p->name = 0;
	return 0;
}

static __always_inline int forget(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (collecting_of(false))
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
