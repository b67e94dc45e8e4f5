// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"

/* An event is on the stack of programs that also use frames. */
#define FETCH_DATA_MAX 208
#include "fetch.bpf.h"
#include "observing.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

#define SITES_MAX 256
#define DEPTH_MAX 16

/* Number of bytes of data used in this run, a multiple of 8. */
const volatile __u32 trace_size = 8;
/* The function of each target, in the order of the command line. */
const volatile __u8 site_function[SITES_MAX] = {};
/* Rows of the target are shown. With track_calls, others only follow the calls. */
const volatile __u8 site_shown[SITES_MAX] = {};
/* Calls are followed from entry to return: there are conditions, or with -s an order. */
const volatile bool track_calls = false;
/* Only calls nested in the order of the functions, of which this is the last one. */
const volatile bool in_order = false;
const volatile __u8 last_function = 0;
/* The entry is sent at the return, because that has a condition. */
const volatile __u8 hold_entries[SITES_MAX] = {};

struct event {
	struct task_info task;
	__u32 target;
	__u32 cpu;
	char data[FETCH_DATA_MAX];
};

const struct event *event_type __attribute__((unused));

/* A call of a function that has not returned. */
struct frame {
	__u8 function;
	bool wanted; /* by the conditions at the entry and the order */
	bool sent; /* its entry has been sent */
	bool held; /* its entry is in the map of entries */
};

struct frames {
	__u32 depth;
	__u32 matched; /* number of frames that are wanted */
	struct frame frame[DEPTH_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, struct frames);
} frames SEC(".maps");

struct entry_key {
	__u32 tid;
	__u32 level;
};

/* Entries that are not sent yet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct entry_key);
	__type(value, struct event);
} entries SEC(".maps");

static const struct frames frames_zero = {};

static __always_inline void send(void *ctx, struct event *e)
{
	__u32 size = trace_size;

	if (size <= FETCH_DATA_MAX && site_shown[e->target % SITES_MAX])
		event_send(ctx, e, offsetof(struct event, data) + size, e->task.time_ns);
}

static __always_inline void fill(void *ctx, struct event *e, __u32 target)
{
	task_info_current(&e->task);
	e->target = target;
	e->cpu = bpf_get_smp_processor_id();
}

/* send_entry sends the entry of a call that was held back, if there is one. */
static __noinline int send_entry(void *ctx, __u32 level)
{
	struct entry_key key = { .tid = bpf_get_current_pid_tgid(), .level = level };
	struct event *e = bpf_map_lookup_elem(&entries, &key);

	if (e) {
		send(ctx, e);
		bpf_map_delete_elem(&entries, &key);
	}
	return 0;
}

static __noinline int drop_entry(__u32 level)
{
	struct entry_key key = { .tid = bpf_get_current_pid_tgid(), .level = level };

	bpf_map_delete_elem(&entries, &key);
	return 0;
}

static __noinline int hold_entry(struct event *e, __u32 level)
{
	struct entry_key key = { .tid = bpf_get_current_pid_tgid(), .level = level };

	if (!e)
		return 0;
	if (!bpf_map_update_elem(&entries, &key, e, BPF_ANY))
		return 1;
	lost_add(map_full);
	return 0;
}

static __always_inline struct frames *frames_get(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct frames *all = bpf_map_lookup_elem(&frames, &tid);

	if (all)
		return all;
	bpf_map_update_elem(&frames, &tid, &frames_zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&frames, &tid);
}

/* frame_push adds a call, and reports whether it is sent now. */
static __always_inline bool frame_push(struct frames *all, __u32 target, struct event *e, bool wanted)
{
	__u32 function = site_function[target % SITES_MAX];
	struct frame f = { .function = function };
	__u32 level = all->depth;

	if (level >= DEPTH_MAX) {
		lost_add(map_full);
		return false;
	}
	if (wanted && in_order && function != all->matched)
		wanted = false;
	f.wanted = wanted;
	if (wanted)
		all->matched++;
	/* A call in a chain whose last function has not been reached waits for it. */
	if (wanted && (hold_entries[target % SITES_MAX] || (in_order && function != last_function)))
		f.held = hold_entry(e, level);
	f.sent = wanted && !f.held;
	all->frame[level & (DEPTH_MAX - 1)] = f;
	all->depth = level + 1;
	return f.sent;
}

/* send_chain sends the entries that waited for the last function. */
static __always_inline void send_chain(void *ctx, struct frames *all)
{
	for (int i = 0; i < DEPTH_MAX; i++) {
		struct frame *f = &all->frame[i];

		if (i < all->depth && f->held) {
			send_entry(ctx, i);
			f->held = false;
			f->sent = true;
		}
	}
}

static __noinline int begin_tracked(void *ctx)
{
	struct event e = {};
	__u32 target = target_id(ctx);
	bool wanted = fetch_wanted(ctx, e.data);
	struct frames *all = frames_get();

	if (!all) {
		lost_add(map_full);
		return 0;
	}
	fill(ctx, &e, target);
	if (!frame_push(all, target, &e, wanted))
		return 0;
	if (in_order)
		send_chain(ctx, all);
	send(ctx, &e);
	return 0;
}

/* frame_pop removes the innermost call of the function, and calls within it whose returns were missed. */
static __always_inline bool frame_pop(struct frames *all, __u32 function, struct frame *f, __u32 *level)
{
	for (int i = 0; i < DEPTH_MAX; i++) {
		__u32 at = all->depth - 1;

		if (!all->depth || at >= DEPTH_MAX)
			return false;
		*f = all->frame[at & (DEPTH_MAX - 1)];
		*level = at;
		all->depth = at;
		if (f->wanted && all->matched)
			all->matched--;
		if (f->function == function)
			return true;
		if (f->held)
			drop_entry(at);
		lost_add(unobserved);
	}
	return false;
}

static __always_inline bool has_frame(struct frames *all, __u32 function)
{
	for (int i = 0; i < DEPTH_MAX; i++)
		if (i < all->depth && all->frame[i].function == function)
			return true;
	return false;
}

static __noinline int end_tracked(void *ctx)
{
	struct event e = {};
	struct frame f = {};
	__u32 tid = bpf_get_current_pid_tgid();
	struct frames *all = bpf_map_lookup_elem(&frames, &tid);
	__u32 target = target_id(ctx), level = 0;
	__u32 function = site_function[target % SITES_MAX];
	bool wanted;

	/* The call began before the run, or is deeper than the frames. */
	if (!all || !has_frame(all, function) || !frame_pop(all, function, &f, &level))
		return 0;
	if (!all->depth)
		bpf_map_delete_elem(&frames, &tid);
	wanted = f.wanted && (f.sent || !in_order) && fetch_wanted(ctx, e.data);
	if (f.held && wanted)
		send_entry(ctx, level);
	else if (f.held)
		drop_entry(level);
	if (!wanted)
		return 0;
	fill(ctx, &e, target);
	send(ctx, &e);
	return 0;
}

static __noinline int hit_untracked(void *ctx)
{
	struct event e = {};

	if (!fetch_wanted(ctx, e.data))
		return 0;
	fill(ctx, &e, target_id(ctx));
	send(ctx, &e);
	return 0;
}

static __always_inline int begin(void *ctx)
{
	if (!task_current_wanted())
		return 0;
	if (!track_calls)
		return hit_untracked(ctx);
	return observing ? begin_tracked(ctx) : 0;
}

static __always_inline int end(void *ctx)
{
	if (!task_current_wanted())
		return 0;
	return track_calls ? end_tracked(ctx) : hit_untracked(ctx);
}

TARGET_PROGRAM(kernel__multi, "kprobe.multi", false, begin(ctx))
TARGET_PROGRAM(kernel__kprobe, "kprobe", false, begin(ctx))
TARGET_PROGRAM(kernel_return__multi, "kretprobe.multi", false, end(ctx))
TARGET_PROGRAM(kernel_return__kprobe, "kretprobe", false, end(ctx))

static __always_inline int task_ended(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct frames *all = track_calls ? bpf_map_lookup_elem(&frames, &tid) : NULL;

	if (!all)
		return 0;
	for (int i = 0; i < DEPTH_MAX; i++)
		if (i < all->depth && all->frame[i].held)
			drop_entry(i);
	bpf_map_delete_elem(&frames, &tid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(ended__btf)
{
	return task_ended();
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(ended__raw)
{
	return task_ended();
}

SEC("tp/sched/sched_process_exit")
int ended__tp(void *ctx)
{
	return task_ended();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
