// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "compat.bpf.h"
#include "list.bpf.h"
#include "lost.bpf.h"
#include "mm.bpf.h"
#include "task.bpf.h"

#define PF_KTHREAD 0x00200000
#define DEFAULT_PRIO 120 /* of nice value 0 */
#define TASK_REPORT 0x7f
#define TASK_IDLE 0x402
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_RTLOCK_WAIT 0x1000 /* 5.15 */
#define TASK_FROZEN 0x8000 /* 6.1 */

/* Rows are threads instead of processes. */
const volatile bool targ_threads = false;
const volatile bool want_args = false;

/* Resource usage of a thread, or of all threads of a process. */
struct usage {
	__u64 cpu_ns; /* as measured by the scheduler */
	__u64 user_ns; /* this and the next one as sampled by clock ticks */
	__u64 system_ns;
	__u64 voluntary_switches;
	__u64 involuntary_switches;
	__u64 minor_faults;
	__u64 major_faults;
};

struct event {
	struct task_info task;
	__u64 start_ns; /* CLOCK_BOOTTIME */
	struct usage usage;
	__u64 rss_pages;
	__u64 swap_pages;
	__u64 virtual_pages;
	__u32 ppid;
	__u32 threads;
	__s32 nice;
	__u32 rt_priority;
	__u32 policy;
	__u32 state; /* index in the letters of /proc/PID/stat */
	__u32 ns_pid;
	__u32 pidns;
	__u32 local_tid; /* in the PID namespace of user space, 0 for none */
	bool kernel;
	bool want_args;
	__u8 pad[2];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* Sums over the live threads of multithreaded processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct usage);
} processes SEC(".maps");

static __always_inline void usage_add_thread(struct usage *u, struct task_struct *task)
{
	u->cpu_ns += BPF_CORE_READ(task, se.sum_exec_runtime);
	u->user_ns += BPF_CORE_READ(task, utime);
	u->system_ns += BPF_CORE_READ(task, stime);
	u->voluntary_switches += BPF_CORE_READ(task, nvcsw);
	u->involuntary_switches += BPF_CORE_READ(task, nivcsw);
	u->minor_faults += BPF_CORE_READ(task, min_flt);
	u->major_faults += BPF_CORE_READ(task, maj_flt);
}

/* Adds the usage of exited threads. */
static __always_inline void usage_add_ended(struct usage *u, struct signal_struct *signal)
{
	u->cpu_ns += BPF_CORE_READ(signal, sum_sched_runtime);
	u->user_ns += BPF_CORE_READ(signal, utime);
	u->system_ns += BPF_CORE_READ(signal, stime);
	u->voluntary_switches += BPF_CORE_READ(signal, nvcsw);
	u->involuntary_switches += BPF_CORE_READ(signal, nivcsw);
	u->minor_faults += BPF_CORE_READ(signal, min_flt);
	u->major_faults += BPF_CORE_READ(signal, maj_flt);
}

/* Adds a thread to its process, if that is multithreaded. */
SEC("iter/task")
int threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct usage none = {}, *u;
	__u32 pid;

	if (!task || BPF_CORE_READ(task, signal, nr_threads) < 2)
		return 0;
	pid = BPF_CORE_READ(task, tgid);
	bpf_map_update_elem(&processes, &pid, &none, BPF_NOEXIST);
	u = bpf_map_lookup_elem(&processes, &pid);
	if (u)
		usage_add_thread(u, task);
	else
		lost_add(map_full);
	return 0;
}

static __always_inline void read_usage(struct event *e, struct task_struct *task)
{
	struct usage *u = NULL;

	if (!targ_threads) {
		u = bpf_map_lookup_elem(&processes, &e->task.pid);
		if (u)
			e->usage = *u;
		usage_add_ended(&e->usage, BPF_CORE_READ(task, signal));
	}
	if (!u)
		usage_add_thread(&e->usage, task);
}

static __always_inline void read_memory(struct event *e, struct mm_struct *mm)
{
	if (!mm)
		return;
	e->rss_pages = mm_pages(mm, MM_FILEPAGES) +
		       mm_pages(mm, MM_ANONPAGES) +
		       mm_pages(mm, MM_SHMEMPAGES);
	e->swap_pages = mm_pages(mm, MM_SWAPENTS);
	e->virtual_pages = BPF_CORE_READ(mm, total_vm);
}

/* As in the kernel for /proc: the highest bit that is set. */
static __always_inline __u32 state_index(struct task_struct *task)
{
	__u32 state = task_state(task), report;

	report = (state | BPF_CORE_READ(task, exit_state)) & TASK_REPORT;
	if (state == TASK_IDLE)
		return 8;
	if (state & (TASK_RTLOCK_WAIT | TASK_FROZEN))
		report = TASK_UNINTERRUPTIBLE;
	for (__u32 i = 7; i > 0; i--)
		if (report & 1 << (i - 1))
			return i;
	return 0;
}

/* The id in the task's own PID namespace. */
static __always_inline void read_ns_pid(struct event *e, struct task_struct *task)
{
	struct upid *upid = task_upid(task, BPF_CORE_READ(task, thread_pid, level));

	e->ns_pid = BPF_CORE_READ(upid, nr);
	e->pidns = BPF_CORE_READ(upid, ns, ns.inum);
}

SEC("iter/task")
int tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct event e = {};

	if (!task || !task_wanted(task))
		return 0;
	task_info_read(&e.task, task);
	if (!targ_threads && e.task.pid != e.task.tid)
		return 0;
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.start_ns = BPF_CORE_READ(task, start_boottime);
	e.ppid = BPF_CORE_READ(task, real_parent, tgid);
	e.threads = BPF_CORE_READ(task, signal, nr_threads);
	e.nice = BPF_CORE_READ(task, static_prio) - DEFAULT_PRIO;
	e.rt_priority = BPF_CORE_READ(task, rt_priority);
	e.policy = BPF_CORE_READ(task, policy);
	e.kernel = BPF_CORE_READ(task, flags) & PF_KTHREAD;
	e.want_args = want_args;
	e.local_tid = task_local_tid(task);
	e.state = state_index(task);
	read_ns_pid(&e, task);
	read_usage(&e, task);
	read_memory(&e, e.kernel ? NULL : process_mm(task));
	list_send(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
