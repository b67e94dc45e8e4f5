// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "holder.bpf.h"
#include "prog.bpf.h"
#include "task.bpf.h"

#define PROG_NAME_LEN 64
#define PROGS_MAX (1 << 14)

struct counters {
	__u64 unseen; /* programs that were loaded and freed between two readings */
};

#include "counters.bpf.h"

struct table_key {
	__u32 id;
};

/* A program as of its last reading. */
struct program {
	struct prog_counts total;
	__u64 load_ns; /* CLOCK_BOOTTIME */
	__u64 cgroup_id;
	__u32 type;
	__u32 pid; /* of the holder; 0 if there is none */
	__u32 uid;
	__u32 holders;
	char comm[TASK_COMM_LEN];
	char name[PROG_NAME_LEN];
};

struct table_value {
	struct prog_counts counts;
	struct program program;
};

#include "table.bpf.h"

/* Keyed by the address of the statistics, the only part that is still known when a program is freed. */
struct tracked {
	struct program program;
	const void *prog;
	__u32 id;
	__u32 pad;
};

const struct tracked tracked_zero = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PROGS_MAX);
	__type(key, const void *);
	__type(value, struct tracked);
} tracked_programs SEC(".maps");

/* The holder of a program: the first matching one, and the number of holders. */
struct owner {
	struct task_info task; /* pid 0 until a holder is found */
	__u32 holders;
	__u32 round;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PROGS_MAX);
	__type(key, const void *);
	__type(value, struct owner);
} owners SEC(".maps");

__u32 last_id;

/* Returns the program that an open file refers to, directly or by a link. */
static __always_inline const void *held_by(struct file *file)
{
	void *object = BPF_CORE_READ(file, private_data);

	switch (bpf_file(file)) {
	case 'p':
		return object;
	case 'l':
		return BPF_CORE_READ((struct bpf_link *)object, prog);
	}
	return NULL;
}

SEC("iter/task_file")
int holders(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct owner none = {}, *owner;
	const void *prog;

	if (!ctx->meta->seq_num)
		holder_round++;
	if (!task || !file)
		return 0;
	prog = held_by(file);
	if (!prog || !reports_resource(task, BPF_CORE_READ(task, files), BPF_CORE_READ(task, group_leader, files)))
		return 0;
	bpf_map_update_elem(&owners, &prog, &none, BPF_NOEXIST);
	owner = bpf_map_lookup_elem(&owners, &prog);
	if (!owner) {
		lost_add(map_full);
		return 0;
	}
	if (owner->round != holder_round)
		*owner = none;
	owner->round = holder_round;
	owner->holders++;
	if (!owner->task.pid && task_wanted(task))
		task_info_read(&owner->task, task);
	return 0;
}

/* describe reads the description of a program and its holder. */
static __always_inline void describe(struct program *p, struct bpf_prog *prog)
{
	struct owner *owner = bpf_map_lookup_elem(&owners, &prog);

	p->load_ns = BPF_CORE_READ(prog, aux, load_time);
	p->type = BPF_CORE_READ(prog, type);
	prog_name(p->name, sizeof(p->name), prog);
	p->pid = p->holders = 0;
	if (!owner || owner->round != holder_round)
		return;
	p->holders = owner->holders;
	p->pid = owner->task.pid;
	p->uid = owner->task.uid;
	p->cgroup_id = owner->task.cgroup_id;
	__builtin_memcpy(p->comm, owner->task.comm, sizeof(p->comm));
}

/* count adds the runs of a program since its last reading to the interval. */
static __always_inline void count(struct tracked *tracked, struct prog_counts *now)
{
	struct table_key key = { .id = tracked->id };
	struct prog_counts last = tracked->program.total;
	struct table_value *value;

	tracked->program.total = *now;
	if (task_filter && !tracked->program.pid)
		return;
	value = table_find(&key);
	if (!value)
		return;
	value->program = tracked->program;
	table_add(value, counts.runs, now->runs - last.runs);
	table_add(value, counts.run_ns, now->run_ns - last.run_ns);
	table_add(value, counts.misses, now->misses - last.misses);
}

/* IDs are assigned in sequence: missing IDs are programs that were never observed. */
static __always_inline void count_unseen(__u32 id)
{
	if (id <= last_id)
		return;
	if (holder_round > 1)
		counter_add_n(unseen, id - last_id - 1);
	last_id = id;
}

SEC("iter/bpf_prog")
int programs(struct bpf_iter__bpf_prog *ctx)
{
	struct bpf_prog *prog = ctx->prog;
	struct prog_counts now = {};
	struct tracked *tracked;
	const void *stats;
	__u32 id;

	if (!prog)
		return 0;
	id = BPF_CORE_READ(prog, aux, id);
	stats = prog_stats(prog);
	count_unseen(id);
	bpf_map_update_elem(&tracked_programs, &stats, &tracked_zero, BPF_NOEXIST);
	tracked = bpf_map_lookup_elem(&tracked_programs, &stats);
	if (!tracked) {
		lost_add(map_full);
		return 0;
	}
	if (tracked->id != id)
		__builtin_memset(tracked, 0, sizeof(*tracked));
	tracked->id = id;
	tracked->prog = prog;
	describe(&tracked->program, prog);
	prog_counts_read(&now, stats);
	count(tracked, &now);
	return 0;
}

/* The last reading of a program: it no longer runs, and its statistics are still readable. */
static __always_inline int handle_free(const void *stats)
{
	struct tracked *tracked = bpf_map_lookup_elem(&tracked_programs, &stats);
	struct prog_counts now = {};
	const void *prog;

	if (!tracked)
		return 0;
	prog = tracked->prog;
	prog_counts_read(&now, stats);
	if (now.runs != tracked->program.total.runs || now.misses != tracked->program.total.misses)
		count(tracked, &now);
	bpf_map_delete_elem(&owners, &prog);
	bpf_map_delete_elem(&tracked_programs, &stats);
	return 0;
}

SEC("tp_btf/percpu_free_percpu")
int BPF_PROG(free__btf, void *base, int off, void *ptr)
{
	return handle_free(ptr);
}

SEC("raw_tp/percpu_free_percpu")
int BPF_PROG(free__raw, void *base, int off, void *ptr)
{
	return handle_free(ptr);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
