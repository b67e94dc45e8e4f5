// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "syscall.bpf.h"
#include "task.bpf.h"

#define NSEC_PER_SEC 1000000000ULL
#define TIMER_ABSTIME 1

/* include/uapi/linux/time.h */
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#define CLOCK_PROCESS_CPUTIME_ID 2
#define CLOCK_BOOTTIME 7
#define CLOCK_REALTIME_ALARM 8
#define CLOCK_BOOTTIME_ALARM 9
#define CLOCK_TAI 11

#define KTIME_MAX 0x7fffffffffffffffULL
#define KTIME_SEC_MAX (KTIME_MAX / NSEC_PER_SEC)

struct event {
	struct task_info task;
	__u64 request_ns; /* duration */
	__u32 ppid;
	__u32 nr;
	__u32 abi;
	__u8 known; /* request_ns is known */
	__u8 absolute;
	__u8 pad[2];
	char parent_comm[TASK_COMM_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

enum sleep_call {
	NO_SLEEP,
	NANOSLEEP, /* nanosleep(request, rest) */
	CLOCK_NANOSLEEP, /* clock_nanosleep(clock, flags, request, rest) */
};

/* nr is without the x32 bit. small is set if the time has two 32-bit numbers. */
static __always_inline enum sleep_call sleep_call(__s32 nr, bool compat, bool *small)
{
	*small = compat;
	if (compat) {
		if (nr == 162)
			return NANOSLEEP;
		*small = nr != 407; /* clock_nanosleep_time64 */
#if defined(__TARGET_ARCH_x86)
		return nr == 267 || nr == 407 ? CLOCK_NANOSLEEP : NO_SLEEP;
	}
	if (nr == 35)
		return NANOSLEEP;
	return nr == 230 ? CLOCK_NANOSLEEP : NO_SLEEP;
#else
		return nr == 265 || nr == 407 ? CLOCK_NANOSLEEP : NO_SLEEP;
	}
	if (nr == 101)
		return NANOSLEEP;
	return nr == 115 ? CLOCK_NANOSLEEP : NO_SLEEP;
#endif
}

/*
 * Reads a time as the kernel does: it refuses some with EINVAL, which are not read, and reduces
 * others to KTIME_MAX. Tasks with 32-bit pointers may set the upper half of tv_nsec to anything.
 */
static __always_inline bool read_time(__u64 *ns, const void *addr, bool small, bool half_nsec)
{
	__s64 time[2] = {};
	__s32 half[2] = {};

	if (small) {
		if (bpf_probe_read_user(half, sizeof(half), addr))
			return false;
		time[0] = half[0];
		time[1] = half[1];
	} else if (bpf_probe_read_user(time, sizeof(time), addr)) {
		return false;
	}
	if (half_nsec)
		time[1] = (__u32)time[1];
	if (time[0] < 0 || (__u64)time[1] >= NSEC_PER_SEC)
		return false;
	*ns = KTIME_MAX;
	if ((__u64)time[0] < KTIME_SEC_MAX)
		*ns = time[0] * NSEC_PER_SEC + time[1];
	return true;
}

/* Whether the call can sleep until a time of that clock. */
static __always_inline bool clock_is_valid(__s32 clock)
{
	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_MONOTONIC:
	case CLOCK_PROCESS_CPUTIME_ID:
	case CLOCK_BOOTTIME:
	case CLOCK_REALTIME_ALARM:
	case CLOCK_BOOTTIME_ALARM:
	case CLOCK_TAI:
		return true;
	}
	return clock < 0; /* CPU time of a given process or thread */
}

/*
 * What the clock of the task's time namespace is ahead of the clock that BPF programs read. Kernels
 * without CONFIG_TIME_NS have no such namespaces.
 */
static __always_inline __s64 clock_offset(__s32 clock)
{
	struct task_struct *task = task_current();
	struct time_namespace *ns;
	struct timespec64 offset = {};

	if (!bpf_core_field_exists(task->nsproxy->time_ns))
		return 0;
	ns = BPF_CORE_READ(task, nsproxy, time_ns);
	if (clock == CLOCK_MONOTONIC)
		BPF_CORE_READ_INTO(&offset, ns, offsets.monotonic);
	else
		BPF_CORE_READ_INTO(&offset, ns, offsets.boottime);
	return offset.tv_sec * NSEC_PER_SEC + offset.tv_nsec;
}

/* Converts the end of a sleep to its duration, where BPF programs can read the clock. */
static __always_inline bool subtract_now(__u64 *ns, __s32 clock)
{
	__u64 now;

	if (clock == CLOCK_MONOTONIC)
		now = bpf_ktime_get_ns();
	else if (clock == CLOCK_BOOTTIME || clock == CLOCK_BOOTTIME_ALARM)
		now = bpf_ktime_get_boot_ns();
	else
		return false;
	now += clock_offset(clock);
	*ns = *ns > now ? *ns - now : 0;
	return true;
}

/* The requested duration, if the call begins a sleep whose duration is known. */
static __always_inline void read_request(struct event *e, struct pt_regs *regs, bool is_clock,
					 bool small)
{
	bool compat = e->abi == SYSCALL_COMPAT;
	__s32 clock = is_clock ? syscall_arg(regs, 0, compat) : CLOCK_MONOTONIC;
	void *addr = (void *)syscall_arg(regs, is_clock ? 2 : 0, compat);

	e->absolute = is_clock && syscall_arg(regs, 1, compat) & TIMER_ABSTIME;
	e->known = clock_is_valid(clock) &&
		   read_time(&e->request_ns, addr, small, e->abi != SYSCALL_NATIVE);
	if (e->known && e->absolute)
		e->known = subtract_now(&e->request_ns, clock);
}

static __always_inline int handle_enter(void *ctx, struct pt_regs *regs, __s32 nr, bool btf)
{
	__s32 plain = nr & ~__X32_SYSCALL_BIT;
	struct task_struct *parent;
	struct event e = {};
	enum sleep_call call;
	bool compat, small;

	if (!sleep_call(plain, false, &small) && !sleep_call(plain, true, &small))
		return 0;
	compat = syscall_is_compat_for(regs, btf);
	call = sleep_call(plain, compat, &small);
	if (!call || !task_current_wanted())
		return 0;
	task_info_current(&e.task);
	e.nr = plain;
	e.abi = syscall_abi(nr, compat);
	read_request(&e, regs, call == CLOCK_NANOSLEEP, small);
	parent = BPF_CORE_READ(task_current(), real_parent);
	e.ppid = BPF_CORE_READ(parent, tgid);
	BPF_CORE_READ_STR_INTO(&e.parent_comm, parent, comm);
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sleep__btf, struct pt_regs *regs, long id)
{
	return handle_enter(ctx, regs, SYSCALL_NR(regs), true);
}

SEC("raw_tp/sys_enter")
int BPF_PROG(sleep__raw, struct pt_regs *regs, long id)
{
	return handle_enter(ctx, regs, syscall_nr(regs), false);
}

SEC("tp/raw_syscalls/sys_enter")
int sleep__tp(struct trace_event_raw_sys_enter *ctx)
{
	struct pt_regs *regs = syscall_regs();

	return handle_enter(ctx, regs, syscall_nr(regs), false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
