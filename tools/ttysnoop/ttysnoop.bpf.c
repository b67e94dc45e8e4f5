// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "inode.bpf.h"
#include "path.bpf.h"
#include "rw.bpf.h"
#include "task.bpf.h"

#define DATA_MAX 4096
#define PARTS_MAX 64
#define IOV_MAX 1024
#define TTY_NAME_LEN 64
/* Drivers of the other end of pseudo terminals: what is written there is input. */
#define PTY_MASTER_MAJOR 2
#define UNIX98_MASTER_FIRST 128
#define UNIX98_MASTER_LAST 135

/* The terminal that is shown, or 0 for all, and one that is not: device numbers of the kernel. */
const volatile __u32 targ_dev = 0;
const volatile __u32 targ_not_dev = 0;
/* corescope itself, in its PID namespace. */
const volatile __u32 targ_self = 0;
/* Bytes of an event, and events of a write, at most. */
const volatile __u32 targ_size = DATA_MAX;
const volatile __u32 targ_parts = 16;

struct event {
	struct task_info task;
	__u64 bytes; /* that the call wrote */
	__u64 offset; /* of the data in what the call wrote */
	__u32 major;
	__u32 minor;
	__u32 len; /* of the data */
	__u32 nr;
	__u32 abi; /* enum syscall_abi */
	__u32 pad;
	char name[TTY_NAME_LEN]; /* of the terminal */
	char data[DATA_MAX];
};

/* What a call wrote: one buffer, or several with addresses in vec. */
struct source {
	__u64 addr;
	__u64 len; /* left in the buffer */
	__u64 vec; /* address of the next struct iovec, 0 for none */
	__u32 vecs; /* left */
	bool small; /* iovecs have 32-bit members */
};

/* The source is not on the stack, where the verifier would follow each of its values. */
struct scratch {
	struct event event;
	struct source source;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* The terminal that the file is, or NULL. Only the files of terminals refer back to themselves. */
static __always_inline struct tty_struct *file_tty(struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct tty_file_private *private;

	if (!file || inode_type(inode) != S_IFCHR)
		return NULL;
	private = BPF_CORE_READ(file, private_data);
	if (!private || BPF_CORE_READ(private, file) != file)
		return NULL;
	return BPF_CORE_READ(private, tty);
}

static __always_inline bool tty_wanted(struct event *e, struct tty_struct *tty, struct file *file)
{
	__u32 dev;

	e->major = BPF_CORE_READ(tty, driver, major);
	e->minor = BPF_CORE_READ(tty, driver, minor_start) + BPF_CORE_READ(tty, index);
	if (e->major == PTY_MASTER_MAJOR ||
	    (e->major >= UNIX98_MASTER_FIRST && e->major <= UNIX98_MASTER_LAST))
		return false;
	dev = e->major << 20 | e->minor;
	if (targ_dev) /* /dev/console is another terminal under a name of its own */
		return dev == targ_dev || BPF_CORE_READ(file, f_inode, i_rdev) == targ_dev;
	return !targ_not_dev || dev != targ_not_dev;
}

static __always_inline void next_buffer(struct source *s)
{
	__u64 vec[2] = {};
	__u32 half[2] = {};

	if (s->small) {
		bpf_probe_read_user(half, sizeof(half), (void *)s->vec);
		vec[0] = half[0];
		vec[1] = half[1];
		s->vec += sizeof(half);
	} else {
		bpf_probe_read_user(vec, sizeof(vec), (void *)s->vec);
		s->vec += sizeof(vec);
	}
	s->addr = vec[0];
	s->len = vec[1];
	s->vecs--;
}

/* Sends the next part of the data. Returns false if there is no more. */
static __always_inline bool send_part(void *ctx, struct event *e, struct source *s)
{
	__u64 left = e->bytes - e->offset;
	__u32 len;

	if (!left)
		return false;
	if (!s->len) {
		if (!s->vecs)
			return false;
		next_buffer(s);
		return true;
	}
	if (left > s->len)
		left = s->len;
	if (left > targ_size)
		left = targ_size;
	len = left;
	if (len > DATA_MAX)
		return false;
	e->len = len;
	if (bpf_probe_read_user(e->data, len, (void *)s->addr))
		return false;
	event_send(ctx, e, offsetof(struct event, data) + len, e->task.time_ns);
	e->offset += len;
	s->addr += len;
	s->len -= len;
	return true;
}

static __always_inline bool is_vectored(__s32 nr, bool compat)
{
	if (compat)
		return nr == RW_compat_writev || nr == RW_compat_pwritev || nr == RW_compat_pwritev2;
#if defined(__TARGET_ARCH_x86)
	if (nr == RW_x32_writev || nr == RW_x32_pwritev || nr == RW_x32_pwritev2)
		return true;
#endif
	return nr == RW_writev || nr == RW_pwritev || nr == RW_pwritev2;
}

/* The call has no data in user memory: sendfile, splice, copy_file_range. */
static __always_inline bool is_copy(const struct rw_call *call)
{
	return call->from >= 0;
}

static __always_inline int handle_write(void *ctx, struct pt_regs *regs, __s32 nr, bool compat,
					const struct rw_call *call, long ret)
{
	struct file *file = task_file(task_current(), syscall_arg(regs, call->to, compat));
	struct tty_struct *tty = file ? file_tty(file) : NULL;
	__s32 plain = nr & ~__X32_SYSCALL_BIT;
	struct scratch *scratched;
	struct source *s;
	struct event *e;
	__u32 zero = 0;

	if (!tty)
		return 0;
	scratched = bpf_map_lookup_elem(&scratch, &zero);
	if (!scratched)
		return 0;
	e = &scratched->event;
	s = &scratched->source;
	__builtin_memset(e, 0, offsetof(struct event, data));
	if (!tty_wanted(e, tty, file))
		return 0;
	task_info_current(&e->task);
	BPF_CORE_READ_STR_INTO(&e->name, tty, name);
	__builtin_memset(s, 0, sizeof(*s));
	s->small = compat || nr & __X32_SYSCALL_BIT;
	e->bytes = ret;
	e->nr = plain;
	e->abi = syscall_abi(nr, compat);
	if (is_vectored(plain, compat)) {
		s->vec = syscall_arg(regs, 1, compat);
		s->vecs = syscall_arg(regs, 2, compat);
		if (s->vecs > IOV_MAX)
			s->vecs = 0;
	} else if (!is_copy(call)) {
		s->addr = syscall_arg(regs, 1, compat);
		s->len = ret;
	}
	for (int i = 0; i < PARTS_MAX && i < targ_parts; i++)
		if (!send_part(ctx, e, s))
			break;
	if (e->offset < e->bytes) { /* the rest, without data */
		e->len = 0;
		event_send(ctx, e, offsetof(struct event, data), e->task.time_ns);
	}
	return 0;
}

static __always_inline int handle_exit(void *ctx, struct pt_regs *regs, __s32 nr, long ret, bool btf)
{
	bool compat = syscall_is_compat_for(regs, btf);
	struct rw_call call;

	if (compat)
		ret = (__s32)ret;
	if (nr < 0 || ret <= 0)
		return 0;
	call = rw_call(nr & ~__X32_SYSCALL_BIT, compat);
	if (call.to < 0 || !task_current_wanted() || task_local_pid(task_current()) == targ_self)
		return 0;
	return NOT_PREEMPTED(handle_write(ctx, regs, nr, compat, &call, ret));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(write__btf, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, SYSCALL_NR(regs), ret, true);
}

SEC("raw_tp/sys_exit")
int BPF_PROG(write__raw, struct pt_regs *regs, long ret)
{
	return handle_exit(ctx, regs, syscall_nr(regs), ret, false);
}

SEC("tp/raw_syscalls/sys_exit")
int write__tp(struct trace_event_raw_sys_exit *ctx)
{
	return handle_exit(ctx, syscall_regs(), syscall_number(ctx->id), ctx->ret, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
