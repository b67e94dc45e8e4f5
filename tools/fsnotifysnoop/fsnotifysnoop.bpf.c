// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

#define NAME_LEN 256

/* Only events of this interface. */
const volatile bool targ_inotify = false;
const volatile bool targ_fanotify = false;
/* Only events that this process caused. */
const volatile __u32 targ_tracee = 0;

/* What caused an event. */
struct tracee {
	__u64 time_ns; /* CLOCK_BOOTTIME, when the event was queued; 0 if unknown */
	__u32 pid;
	__u32 tid;
	__u32 uid;
	char comm[TASK_COMM_LEN];
	__u32 pad;
};

struct event {
	struct task_info task; /* that reads the event */
	struct tracee tracee;
	__u32 mask;
	__u32 is_fanotify;
	__s32 wd; /* of inotify */
	__u32 cookie;
	__u32 name_len; /* with the NUL byte; 0 if the event has no name */
	__u32 pad;
	char name[NAME_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

struct scratch {
	struct event event;
};

#include "scratch.bpf.h"

struct counters {
	__u64 merged; /* events that were not queued, or withdrawn: an equal one was queued, or the queue was full */
	__u64 unread; /* events that were queued when the watching process closed its descriptor */
	__u64 queued; /* events of all processes that were not read when the run ended */
};

#include "counters.bpf.h"

/* Events that are queued, from their insertion to their removal from the queue. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u64); /* struct fsnotify_event * */
	__type(value, struct tracee);
} queued SEC(".maps");

/*
 * Only inotify and fanotify have queues. inotify has another handler from 5.11 on (1a2620a99803);
 * before, and until 5.13 (5b8fea65d197), only inotify notices when marks are freed.
 */
static __always_inline bool group_is_fanotify(struct fsnotify_group *group)
{
	const struct fsnotify_ops *ops = BPF_CORE_READ(group, ops);

	if (bpf_core_field_exists(ops->handle_inode_event) && BPF_CORE_READ(ops, handle_inode_event))
		return false;
	return bpf_core_field_exists(group->fanotify_data.ucounts) || !BPF_CORE_READ(ops, freeing_mark);
}

static __always_inline int handle_insert(struct fsnotify_group *group, __u64 event)
{
	struct tracee tracee = {};

	if (targ_tracee && task_local_pid(task_current()) != targ_tracee)
		return 0;
	/* A group that is being closed drops its own last events, such as IGNORED. */
	if (BPF_CORE_READ(group, shutdown))
		return 0;
	if (group_is_fanotify(group) ? targ_inotify : targ_fanotify)
		return 0;
	tracee.time_ns = bpf_ktime_get_boot_ns();
	tracee.pid = bpf_get_current_pid_tgid() >> 32;
	tracee.tid = bpf_get_current_pid_tgid();
	tracee.uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(tracee.comm, sizeof(tracee.comm));
	if (bpf_map_update_elem(&queued, &event, &tracee, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/* An event that is destroyed, and was not removed from the queue by its reader. */
static __always_inline int handle_destroy(__u64 event)
{
	if (!bpf_map_delete_elem(&queued, &event))
		counter_add(merged);
	return 0;
}

static __always_inline void read_inotify(struct event *e, struct inotify_event_info *info)
{
	long len = 0;

	e->mask = BPF_CORE_READ(info, mask);
	e->wd = BPF_CORE_READ(info, wd);
	e->cookie = BPF_CORE_READ(info, sync_cookie);
	if (BPF_CORE_READ(info, name_len))
		len = bpf_probe_read_kernel_str(e->name, sizeof(e->name),
						(void *)info + bpf_core_field_offset(struct inotify_event_info, name));
	e->name_len = len > 0 ? len : 0;
}

/* The name follows file handles. */
static __always_inline const void *name_of(struct fanotify_name_event *event)
{
	struct fanotify_info *info = __builtin_preserve_access_index(&event->info);
	__u32 at = BPF_CORE_READ(info, dir_fh_totlen) + BPF_CORE_READ(info, file_fh_totlen);

	/* From 5.17 on (2d9374f09513). */
	if (bpf_core_field_exists(info->dir2_fh_totlen))
		at += BPF_CORE_READ(info, dir2_fh_totlen);
	if (!BPF_CORE_READ(info, name_len))
		return NULL;
	return (void *)info + bpf_core_field_offset(struct fanotify_info, buf) + at;
}

static __always_inline void read_fanotify(struct event *e, struct fanotify_event *event)
{
	struct fanotify_path_event *with_path = (void *)event;
	struct fanotify_perm_event *permission = (void *)event;
	__u32 type = BPF_CORE_READ_BITFIELD_PROBED(event, type);
	const void *name = NULL;
	long len = 0;

	e->is_fanotify = true;
	e->mask = BPF_CORE_READ(event, mask);
	if (type == bpf_core_enum_value(enum fanotify_event_type, FANOTIFY_EVENT_TYPE_PATH))
		name = BPF_CORE_READ(with_path, path.dentry, d_name.name);
	else if (type == bpf_core_enum_value(enum fanotify_event_type, FANOTIFY_EVENT_TYPE_PATH_PERM))
		name = BPF_CORE_READ(permission, path.dentry, d_name.name);
	else if (type == bpf_core_enum_value(enum fanotify_event_type, FANOTIFY_EVENT_TYPE_FID_NAME))
		name = name_of((void *)event);
	if (name)
		len = bpf_probe_read_kernel_str(e->name, sizeof(e->name), name);
	e->name_len = len > 0 ? len : 0;
}

static __always_inline void send_event(void *ctx, struct event *e, struct fsnotify_event *event, bool is_fanotify)
{
	__u32 len;

	task_info_current(&e->task);
	if (is_fanotify)
		read_fanotify(e, (void *)event);
	else
		read_inotify(e, (void *)event);
	len = e->name_len;
	if (len <= NAME_LEN)
		event_send(ctx, e, offsetof(struct event, name) + len, e->task.time_ns);
}

/* The event leaves the queue: it is read, or the group of the watching process is closed. */
static __always_inline int handle_remove(void *ctx, struct fsnotify_group *group, struct fsnotify_event *event)
{
	__u64 id = (__u64)event;
	struct tracee *tracee;
	struct scratch *s;
	bool is_fanotify;

	if (!event)
		return 0;
	tracee = bpf_map_lookup_elem(&queued, &id);
	is_fanotify = group_is_fanotify(group);
	if (is_fanotify ? targ_inotify : targ_fanotify)
		return 0;
	/* Without a tracee the event was queued before the run, or says that events were dropped. */
	if ((tracee || !targ_tracee) && task_current_wanted()) {
		if (BPF_CORE_READ(group, shutdown)) {
			counter_add(unread);
		} else {
			s = scratch_begin();
			if (s && tracee)
				s->event.tracee = *tracee;
			if (s)
				send_event(ctx, &s->event, event, is_fanotify);
			scratch_end();
		}
	}
	if (tracee)
		bpf_map_delete_elem(&queued, &id);
	return 0;
}

SEC("iter/bpf_map_elem")
int settle(struct bpf_iter__bpf_map_elem *ctx)
{
	if (ctx->key && ctx->value)
		counter_add(queued);
	return 0;
}

/* Another name from 5.17 on (1ad03c3a326a), where fsnotify_add_event is inlined. */
#define INSERT(fentry, kprobe, function)                                              \
	SEC("fentry/" #function)                                                      \
	int insert__##fentry(__u64 *ctx)                                              \
	{                                                                             \
		return handle_insert((void *)ctx[0], ctx[1]);                         \
	}                                                                             \
	SEC("kprobe/" #function)                                                      \
	int insert__##kprobe(struct pt_regs *ctx)                                     \
	{                                                                             \
		return handle_insert((void *)PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx)); \
	}

INSERT(fentry, kprobe, fsnotify_insert_event)
INSERT(oldfentry, oldkprobe, fsnotify_add_event)

SEC("fentry/fsnotify_destroy_event")
int destroy__fentry(__u64 *ctx)
{
	return handle_destroy(ctx[1]);
}

SEC("kprobe/fsnotify_destroy_event")
int destroy__kprobe(struct pt_regs *ctx)
{
	return handle_destroy(PT_REGS_PARM2(ctx));
}

SEC("fexit/fsnotify_remove_first_event")
int remove__fentry(__u64 *ctx)
{
	return handle_remove(ctx, (void *)ctx[0], (void *)ctx[1]);
}

/* The groups whose queues threads read. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* thread */
	__type(value, __u64);
} groups SEC(".maps");

SEC("kprobe/fsnotify_remove_first_event")
int BPF_KPROBE(remove__kprobe__begin, struct fsnotify_group *group)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 value = (__u64)group;

	if (bpf_map_update_elem(&groups, &tid, &value, BPF_ANY))
		lost_add(map_full);
	return 0;
}

SEC("kretprobe/fsnotify_remove_first_event")
int remove__kprobe__end(struct pt_regs *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 *entry = bpf_map_lookup_elem(&groups, &tid);
	__u64 group;

	if (!entry)
		return 0;
	group = *entry;
	bpf_map_delete_elem(&groups, &tid);
	return handle_remove(ctx, (void *)group, (void *)PT_REGS_RC(ctx));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
