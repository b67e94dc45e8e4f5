// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "file.bpf.h"
#include "sockcall.bpf.h"
#include "task.bpf.h"

#define AF_UNIX 1
#define SOL_SOCKET 1
#define SCM_RIGHTS 1
/* Steps of a call: one for each message, control message and descriptor. */
#define STEPS_MAX 320

enum { /* include/uapi/linux/net.h */
	SYS_SENDMSG = 16,
	SYS_RECVMSG = 17,
	SYS_RECVMMSG = 19,
	SYS_SENDMMSG = 20,
};

#if defined(__TARGET_ARCH_x86)
enum {
	NR_sendmsg = 46,
	NR_recvmsg = 47,
	NR_recvmmsg = 299,
	NR_sendmmsg = 307,
	NR_x32_sendmsg = 518,
	NR_x32_recvmsg = 519,
	NR_x32_recvmmsg = 537,
	NR_x32_sendmmsg = 538,
	NR_compat_recvmmsg = 337,
	NR_compat_sendmmsg = 345,
	NR_compat_sendmsg = 370,
	NR_compat_recvmsg = 372,
};
#else
enum {
	NR_sendmsg = 211,
	NR_recvmsg = 212,
	NR_recvmmsg = 243,
	NR_sendmmsg = 269,
	NR_x32_sendmsg = -11,
	NR_x32_recvmsg = -12,
	NR_x32_recvmmsg = -13,
	NR_x32_sendmmsg = -14,
	NR_compat_recvmmsg = 365,
	NR_compat_sendmmsg = 374,
	NR_compat_sendmsg = 296,
	NR_compat_recvmsg = 297,
};
#endif
#define NR_compat_recvmmsg_time64 417

enum action {
	ACTION_NONE,
	ACTION_SEND,
	ACTION_RECEIVE,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum action *action_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 socket_inode;
	__u32 socket_fd;
	__u32 fd;
	__u32 action; /* enum action */
	__u32 known; /* the descriptor is still open */
	struct file_info file;
	char data[PATH_BUF_SIZE]; /* names of the path */
};

/* A call, and the position in its messages. */
struct walk {
	__u64 message; /* the next struct msghdr */
	__u64 control; /* the next struct cmsghdr of the current message */
	__u64 end; /* of its control messages */
	__u64 fds; /* the next descriptor of the current control message */
	__u32 messages; /* left, as are the descriptors */
	__u32 nr_fds;
	__u32 message_size; /* from one struct msghdr to the next */
	bool narrow; /* structs with 32-bit members */
};

struct scratch {
	struct event event;
	struct walk walk;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* A call of sendmsg, recvmsg, sendmmsg or recvmmsg in any ABI. */
struct call {
	enum action action;
	bool many;
	bool narrow;
};

static __always_inline void call_set(struct call *call, enum action action, bool many)
{
	call->action = action;
	call->many = many;
}

static __always_inline void call_of_socketcall(struct call *call, __u32 nr)
{
	if (nr == SYS_SENDMSG || nr == SYS_SENDMMSG)
		call_set(call, ACTION_SEND, nr == SYS_SENDMMSG);
	else if (nr == SYS_RECVMSG || nr == SYS_RECVMMSG)
		call_set(call, ACTION_RECEIVE, nr == SYS_RECVMMSG);
}

static __always_inline void call_of_compat(struct call *call, struct pt_regs *regs, __s32 nr)
{
	call->narrow = true;
	if (nr == NR_compat_socketcall)
		call_of_socketcall(call, syscall_arg(regs, 0, true));
	else if (nr == NR_compat_sendmsg || nr == NR_compat_sendmmsg)
		call_set(call, ACTION_SEND, nr == NR_compat_sendmmsg);
	else if (nr == NR_compat_recvmsg)
		call_set(call, ACTION_RECEIVE, false);
	else if (nr == NR_compat_recvmmsg || nr == NR_compat_recvmmsg_time64)
		call_set(call, ACTION_RECEIVE, true);
}

/* nr is without the x32 bit. x32 has the structs of 32-bit tasks. */
static __always_inline void call_of_native(struct call *call, __s32 nr)
{
	if (nr == NR_sendmsg || nr == NR_sendmmsg)
		call_set(call, ACTION_SEND, nr == NR_sendmmsg);
	else if (nr == NR_recvmsg || nr == NR_recvmmsg)
		call_set(call, ACTION_RECEIVE, nr == NR_recvmmsg);
	else if (nr == NR_x32_sendmsg || nr == NR_x32_sendmmsg)
		call_set(call, ACTION_SEND, nr == NR_x32_sendmmsg);
	else if (nr == NR_x32_recvmsg || nr == NR_x32_recvmmsg)
		call_set(call, ACTION_RECEIVE, nr == NR_x32_recvmmsg);
	call->narrow = nr >= NR_x32_sendmsg && NR_x32_sendmsg > 0;
}

/* A cheap check before the ABI is read: whether the number is that of such a call in any ABI. */
static __always_inline bool call_is_possible(__s32 nr)
{
	struct call call = {};

	call_of_native(&call, nr);
	return call.action || nr == NR_compat_socketcall || nr == NR_compat_sendmsg ||
	       nr == NR_compat_sendmmsg || nr == NR_compat_recvmsg || nr == NR_compat_recvmmsg ||
	       nr == NR_compat_recvmmsg_time64;
}

static __always_inline __u64 read_word(__u64 at, bool narrow)
{
	__u64 word = 0;

	bpf_probe_read_user(&word, narrow ? 4 : 8, (void *)at);
	return word;
}

/* Begins with the control messages of the next message. Returns false if there is none. */
static __always_inline bool next_message(struct walk *w)
{
	if (!w->messages)
		return false;
	w->messages--;
	w->control = read_word(w->message + (w->narrow ? 16 : 32), w->narrow);
	w->end = w->control + read_word(w->message + (w->narrow ? 20 : 40), w->narrow);
	w->message += w->message_size;
	return true;
}

/* Begins with the descriptors of the next control message. Returns false if there is none. */
static __always_inline bool next_control(struct walk *w)
{
	__u32 head = w->narrow ? 12 : 16, align = w->narrow ? 3 : 7;
	__u32 kind[2] = {};
	__u64 len;

	if (!w->control || w->control + head > w->end)
		return false;
	len = read_word(w->control, w->narrow);
	bpf_probe_read_user(&kind, sizeof(kind), (void *)(w->control + head - sizeof(kind)));
	if (len < head || len > w->end - w->control) {
		w->control = 0;
		return false;
	}
	if (kind[0] == SOL_SOCKET && kind[1] == SCM_RIGHTS) {
		w->fds = w->control + head;
		w->nr_fds = (len - head) / sizeof(__u32);
	}
	w->control += (len + align) & ~(__u64)align;
	return true;
}

/*
 * Reads the file of the next descriptor into the event. Global, so that the verifier checks it once
 * instead of for each step.
 */
__noinline int describe_next(void)
{
	__u32 zero = 0, fd = -1;
	struct scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	struct file *file;

	if (!s)
		return 0;
	bpf_probe_read_user(&fd, sizeof(fd), (void *)s->walk.fds);
	s->walk.fds += sizeof(fd);
	s->walk.nr_fds--;
	__builtin_memset(&s->event.file, 0, sizeof(s->event.file));
	s->event.fd = fd;
	file = task_file(task_current(), fd);
	s->event.known = !!file;
	if (file)
		file_info_read(&s->event.file, s->event.data, __builtin_preserve_access_index(&file->f_path));
	return 0;
}

static __always_inline void send_next(void *ctx, struct scratch *s)
{
	__u32 len;

	describe_next();
	len = s->event.file.path.len;
	if (len > PATH_BUF_SIZE)
		len = PATH_BUF_SIZE;
	event_send(ctx, &s->event, offsetof(struct event, data) + len, s->event.task.time_ns);
}

static __always_inline void walk_messages(void *ctx, struct scratch *s)
{
	struct walk *w = &s->walk;

	for (int i = 0; i < STEPS_MAX; i++) {
		if (w->nr_fds)
			send_next(ctx, s);
		else if (!next_control(w) && !next_message(w))
			return;
	}
	lost_add(unobserved);
}

static __always_inline bool sock_is_unix(struct file *file)
{
	const struct sock *sk = file ? file_sock(file) : NULL;

	return sk && BPF_CORE_READ(sk, __sk_common.skc_family) == AF_UNIX;
}

static __always_inline void handle_call(void *ctx, struct pt_regs *regs, __s32 nr, __s32 ret,
					bool compat, const struct call *call)
{
	__u32 zero = 0, fd = sock_call_arg(regs, nr, 0, compat);
	struct scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	struct file *file = task_file(task_current(), fd);

	if (!s || !sock_is_unix(file) || !task_current_wanted())
		return;
	__builtin_memset(&s->walk, 0, sizeof(s->walk));
	__builtin_memset(&s->event, 0, offsetof(struct event, data));
	s->walk.message = sock_call_arg(regs, nr, 1, compat);
	s->walk.messages = call->many ? ret : 1;
	s->walk.narrow = call->narrow;
	s->walk.message_size = call->narrow ? 32 : 64;
	task_info_current(&s->event.task);
	s->event.socket_fd = fd;
	s->event.socket_inode = BPF_CORE_READ(file, f_inode, i_ino);
	s->event.action = call->action;
	walk_messages(ctx, s);
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	struct call call = {};
	bool compat;

	nr &= ~__X32_SYSCALL_BIT;
	if (!call_is_possible(nr) || (__s32)ret < 0)
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	if (compat)
		call_of_compat(&call, regs, nr);
	else
		call_of_native(&call, nr);
	if (call.action)
		handle_call(ctx, regs, nr, ret, compat, &call);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call__btf, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true));
}

SEC("raw_tp/sys_exit")
int BPF_PROG(call__raw, struct pt_regs *regs, long ret)
{
	return NOT_PREEMPTED(handle_exit(ctx, regs, syscall_nr(regs), ret, false));
}

SEC("tp/raw_syscalls/sys_exit")
int call__tp(struct trace_event_raw_sys_exit *ctx)
{
	return NOT_PREEMPTED(handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
