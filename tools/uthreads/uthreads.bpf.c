// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "event.bpf.h"
#include "language.bpf.h"
#include "lost.bpf.h"
#include "stackwalk.bpf.h"
#include "task.bpf.h"

#define NAME_LEN 80

struct event {
	struct task_info task; /* C: the creator */
	__u64 id; /* Java: of the runtime */
	__u64 routine; /* C: address of the function that the new thread executes */
	__u32 language;
	__u32 native_id; /* thread ID in the initial PID namespace */
	__u8 started; /* otherwise stopped */
	__u8 daemon; /* Java */
	__u8 name_len;
	__u8 pad[5];
	char name[NAME_LEN]; /* Java */
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* An event, and a stack whose only frame is the function, which user space symbolizes. */
struct event_and_stack {
	struct event event;
	struct stack_head head;
	__u64 frame;
};

static __always_inline int java(void *ctx, bool started)
{
	struct event e = { .language = LANGUAGE_JAVA, .started = started };
	__u64 len = (__u32)language_number(ctx, 1);

	if (!task_current_wanted())
		return 0;
	task_info_current(&e.task);
	if (len > NAME_LEN)
		len = NAME_LEN;
	if (!bpf_probe_read_user(e.name, len, (void *)language_number(ctx, 0)))
		e.name_len = len;
	e.id = language_number(ctx, 2);
	e.native_id = e.task.tid;
	e.daemon = language_number(ctx, 4) != 0;
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("usdt/java:hotspot:thread__start")
int java__usdt__start(struct pt_regs *ctx)
{
	return java(ctx, true);
}

SEC("usdt/java:hotspot:thread__stop")
int java__usdt__stop(struct pt_regs *ctx)
{
	return java(ctx, false);
}

/* The functions that threads in pthread_create() start. Replaced by the next call of the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, __u64);
} creating SEC(".maps");

SEC("uprobe/c:pthread_create")
int BPF_KPROBE(c__uprobe, void *thread, const void *attr, __u64 routine)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (task_current_wanted() && bpf_map_update_elem(&creating, &tid, &routine, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/* The task can no longer fail to be created. */
static __always_inline int handle_new(void *ctx, struct task_struct *task)
{
	struct event_and_stack s = { .event.language = LANGUAGE_C, .event.started = true };
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 *routine = bpf_map_lookup_elem(&creating, &tid);

	if (!routine)
		return 0;
	s.event.routine = s.frame = *routine;
	bpf_map_delete_elem(&creating, &tid);
	task_info_current(&s.event.task);
	s.event.native_id = BPF_CORE_READ(task, pid);
	s.head.time_ns = bpf_ktime_get_ns();
	s.head.pid = user_stack_pid();
	s.head.space = stack_space(s.head.pid);
	s.head.frames = 1;
	event_send(ctx, &s, sizeof(s), s.event.task.time_ns);
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(create__btf, struct task_struct *task)
{
	return handle_new(ctx, task);
}

SEC("raw_tp/task_newtask")
int BPF_PROG(create__raw, struct task_struct *task)
{
	return handle_new(ctx, task);
}

/* A thread whose pthread_create() failed has an entry. */
static __always_inline int forget(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&creating, &tid);
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
