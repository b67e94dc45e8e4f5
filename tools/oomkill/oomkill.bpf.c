// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "arg.bpf.h"
#include "compat.bpf.h"
#include "event.bpf.h"
#include "memcg.bpf.h"
#include "mm.bpf.h"
#include "task.bpf.h"

#define SIGKILL 9
#define SEND_SIG_PRIV 1 /* instead of siginfo: sent by the kernel */
#define UNKNOWN_CONSTRAINT -1
#define CGROUP_NAME_MAX 256
#define CGROUP_PATH_MAX 4096

struct event {
	struct task_info task; /* the victim */
	__u64 trigger_cgroup_id;
	__u64 oom_cgroup_id;
	__u64 limit_pages;
	__u64 pages;
	__u64 total_vm_pages;
	__u64 anon_pages;
	__u64 file_pages;
	__u64 shmem_pages;
	__u64 page_table_bytes;
	__u32 trigger_pid;
	__u32 trigger_tid;
	__u32 trigger_uid;
	char trigger_comm[TASK_COMM_LEN];
	__s32 constraint; /* enum oom_constraint */
	__s32 order;
	__s32 score_adj;
	bool killed;
	bool path_truncated;
	__u8 pad[2];
	__u32 path_len;
	char path[CGROUP_PATH_MAX + CGROUP_NAME_MAX]; /* of the memory cgroup: see cgroup_names() */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

struct counters {
	__u64 unidentified; /* victims of which only the thread ID is known */
};

#include "counters.bpf.h"

/*
 * The last SIGKILL that the kernel sent on this CPU. The OOM killer sends it to the victim
 * immediately before it marks it, under the lock of the victim, so on the same CPU.
 */
struct kill {
	struct task_struct *victim;
	__u32 sender;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kill);
} kills SEC(".maps");

/* The struct oom_control of threads that are in out_of_memory(). Preallocated: memory is short. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct oom_control *);
} ooms SEC(".maps");

static __always_inline int handle_signal(__u32 sig, __u64 info, struct task_struct *task)
{
	__u32 zero = 0;
	struct kill *kill;

	if (sig != SIGKILL || info != SEND_SIG_PRIV)
		return 0;
	kill = bpf_map_lookup_elem(&kills, &zero);
	if (kill) {
		kill->victim = task;
		kill->sender = bpf_get_current_pid_tgid();
	}
	return 0;
}

/* Returns the task with that thread ID that the current task has just killed, or NULL. */
static __always_inline struct task_struct *killed_task(__u32 tid)
{
	__u32 zero = 0, self = bpf_get_current_pid_tgid();
	struct kill *kill = bpf_map_lookup_elem(&kills, &zero);
	struct task_struct *victim;

	if (!kill || !kill->victim || kill->sender != self)
		return NULL;
	victim = kill->victim;
	kill->victim = NULL;
	return BPF_CORE_READ(victim, pid) == tid ? victim : NULL;
}

/*
 * Without out_of_memory(): a cgroup that is out of memory is locked for that, with its
 * descendants, in kernels with CONFIG_MEMCG_V1, also in cgroup v2. The outermost locked one has
 * reached its limit.
 */
struct mem_cgroup___v1 {
	bool oom_lock;
} __attribute__((preserve_access_index));

static __always_inline struct mem_cgroup *locked_memcg(struct task_struct *victim)
{
	struct mem_cgroup *memcg = task_memcg(victim), *found = NULL;

	if (!bpf_core_field_exists(((struct mem_cgroup___v1 *)0)->oom_lock))
		return NULL;
	for (int i = 0; i < MEMCG_DEPTH_MAX && memcg; i++) {
		if (BPF_CORE_READ((struct mem_cgroup___v1 *)memcg, oom_lock))
			found = memcg;
		memcg = css_memcg(BPF_CORE_READ(memcg, css.parent));
	}
	return found;
}

/* The parent is protected by RCU and has another name from 6.15 on (633488947ef6). */
struct kernfs_node___old {
	struct kernfs_node *parent;
} __attribute__((preserve_access_index));

static __always_inline struct kernfs_node *kernfs_parent(struct kernfs_node *node)
{
	if (bpf_core_field_exists(((struct kernfs_node___old *)0)->parent))
		return BPF_CORE_READ((struct kernfs_node___old *)node, parent);
	return BPF_CORE_READ(node, __parent);
}

/*
 * Writes the names of a cgroup and its parents, each with its NUL byte, the root excluded. IDs are
 * not sufficient: user space looks them up in one hierarchy, which need not be that of the memory
 * controller.
 */
static __always_inline void cgroup_names(struct event *e, struct kernfs_node *node)
{
	struct kernfs_node *parent;

	e->path_truncated = true;
	for (int i = 0; i < MEMCG_DEPTH_MAX; i++) {
		__u32 len = e->path_len;
		long n;

		parent = kernfs_parent(node);
		if (!parent) {
			e->path_truncated = false;
			break;
		}
		if (len >= CGROUP_PATH_MAX)
			break;
		n = bpf_probe_read_kernel_str(e->path + len, CGROUP_NAME_MAX,
					      BPF_CORE_READ(node, name));
		if (n <= 0)
			break;
		e->path_len = len + n;
		node = parent;
	}
}

static __always_inline void read_limits(struct event *e, struct oom_control *oc,
					struct task_struct *victim)
{
	struct mem_cgroup *memcg = NULL;

	e->constraint = UNKNOWN_CONSTRAINT;
	if (oc) {
		memcg = BPF_CORE_READ(oc, memcg);
		e->pages = BPF_CORE_READ(oc, totalpages);
		e->order = BPF_CORE_READ(oc, order);
		e->constraint = BPF_CORE_READ(oc, constraint);
	} else if (victim) {
		memcg = locked_memcg(victim);
	}
	if (!memcg)
		return;
	e->constraint = bpf_core_enum_value(enum oom_constraint, CONSTRAINT_MEMCG);
	e->oom_cgroup_id = memcg_cgroup_id(memcg);
	e->limit_pages = BPF_CORE_READ(memcg, memory.max);
	cgroup_names(e, BPF_CORE_READ(memcg, css.cgroup, kn));
}

static __always_inline void read_trigger(struct event *e)
{
	__u64 id = bpf_get_current_pid_tgid();

	e->trigger_pid = id >> 32;
	e->trigger_tid = id;
	e->trigger_uid = bpf_get_current_uid_gid();
	e->trigger_cgroup_id = task_current_cgroup_id();
	bpf_get_current_comm(e->trigger_comm, sizeof(e->trigger_comm));
}

static __always_inline void read_victim(struct event *e, struct task_struct *victim)
{
	struct mm_struct *mm = process_mm(victim);

	task_info_read(&e->task, victim);
	e->score_adj = BPF_CORE_READ(victim, signal, oom_score_adj);
	if (!mm)
		return;
	e->total_vm_pages = BPF_CORE_READ(mm, total_vm);
	e->anon_pages = mm_pages(mm, MM_ANONPAGES);
	e->file_pages = mm_pages(mm, MM_FILEPAGES);
	e->shmem_pages = mm_pages(mm, MM_SHMEMPAGES);
	e->page_table_bytes = BPF_CORE_READ(mm, pgtables_bytes.counter);
}

/* The tracepoint passes the thread ID before 6.8 (72ba14deb40a), since then the task. */
typedef void (*btf_trace_mark_victim___id)(void *, int);

/* Returns the victim, or NULL if only its thread ID is known. */
static __always_inline struct task_struct *find_victim(__u64 *ctx, struct oom_control *oc,
						       __u32 *tid, bool *killed)
{
	struct task_struct *task = NULL, *victim;
	bool by_id = bpf_core_type_exists(btf_trace_mark_victim___id);

	if (by_id) {
		bpf_probe_read_kernel(tid, sizeof(*tid), &ctx[0]);
	} else {
		bpf_probe_read_kernel(&task, sizeof(task), &ctx[0]);
		*tid = BPF_CORE_READ(task, pid);
	}
	victim = killed_task(*tid);
	*killed = victim;
	if (!by_id)
		return task;
	if (victim)
		return victim;
	/* It was exiting: the current task, or the one that was selected. */
	if (*tid == (__u32)bpf_get_current_pid_tgid())
		return task_current();
	victim = oc ? BPF_CORE_READ(oc, chosen) : NULL;
	return victim && BPF_CORE_READ(victim, pid) == *tid ? victim : NULL;
}

static __always_inline int handle_mark(__u64 *ctx)
{
	__u32 self = bpf_get_current_pid_tgid(), zero = 0, len;
	struct oom_control **entry = bpf_map_lookup_elem(&ooms, &self);
	struct oom_control *oc = entry ? *entry : NULL;
	struct event *e = bpf_map_lookup_elem(&scratch, &zero);
	struct task_struct *victim;

	if (!e)
		return 0;
	__builtin_memset(e, 0, offsetof(struct event, path));
	victim = find_victim(ctx, oc, &e->task.tid, &e->killed);
	if (victim ? !task_wanted(victim) : task_filter)
		return 0;
	if (victim)
		read_victim(e, victim);
	else
		counter_add(unidentified);
	e->task.time_ns = bpf_ktime_get_boot_ns();
	read_trigger(e);
	read_limits(e, oc, victim);
	len = e->path_len;
	if (len <= sizeof(e->path))
		event_send(ctx, e, offsetof(struct event, path) + len, e->task.time_ns);
	return 0;
}

static __always_inline int oom_begin(struct oom_control *oc)
{
	__u32 self = bpf_get_current_pid_tgid();

	if (bpf_map_update_elem(&ooms, &self, &oc, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int oom_end(void)
{
	__u32 self = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&ooms, &self);
	return 0;
}

SEC("tp_btf/mark_victim")
int mark__btf(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_mark(ctx));
}

SEC("raw_tp/mark_victim")
int mark__raw(__u64 *ctx)
{
	return NOT_PREEMPTED(handle_mark(ctx));
}

SEC("tp_btf/signal_generate")
int signal__btf(__u64 *ctx)
{
	return handle_signal(trace_arg(ctx, 0), trace_arg(ctx, 1), (void *)trace_arg(ctx, 2));
}

SEC("raw_tp/signal_generate")
int signal__raw(__u64 *ctx)
{
	return handle_signal(trace_arg(ctx, 0), trace_arg(ctx, 1), (void *)trace_arg(ctx, 2));
}

SEC("fentry/out_of_memory")
int BPF_PROG(oom__fentry__begin, struct oom_control *oc)
{
	return oom_begin(oc);
}

SEC("fexit/out_of_memory")
int BPF_PROG(oom__fentry__end, struct oom_control *oc)
{
	return oom_end();
}

SEC("kprobe/out_of_memory")
int BPF_KPROBE(oom__kprobe__begin, struct oom_control *oc)
{
	return oom_begin(oc);
}

SEC("kretprobe/out_of_memory")
int BPF_KRETPROBE(oom__kprobe__end)
{
	return oom_end();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
