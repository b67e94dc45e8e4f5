// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "holder.bpf.h"
#include "list.bpf.h"
#include "owners.bpf.h"
#include "prog.bpf.h"
#include "task.bpf.h"

#define BPF_OBJ_NAME_LEN 16
#define BPF_TAG_SIZE 8
#define NO_UID (-1U)

enum kind {
	KIND_PROG,
	KIND_MAP,
	KIND_LINK,
	KIND_KPROBE, /* from here on only sent by held */
	KIND_UPROBE,
	KIND_TRACEPOINT,
	KIND_PERF_EVENT,
	KIND_NONE,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum kind *kind_type __attribute__((unused));

struct event {
	struct task_info task; /* the holder; pid 0 if there is none */
	__u64 load_ns; /* CLOCK_BOOTTIME; only programs */
	struct prog_counts counts;
	__u32 id;
	__u32 kind; /* enum kind */
	__u32 type;
	__u32 prog_id; /* only links */
	__u32 owner_uid;
	__u32 fd;
	__u32 holders;
	__u32 insns;
	__u32 jited_bytes;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
	__u32 count; /* sent by held: the functions of a link to many, otherwise 1 */
	__u32 pad_count;
	bool measured;
	__u8 pad[7];
	__u8 tag[BPF_TAG_SIZE];
	char name[BPF_OBJ_NAME_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* Finds the holders: an open object is the private data of its file. */
SEC("iter/task_file")
int holders(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	__u32 fd = ctx->fd;

	if (!task || !file || !bpf_file(file))
		return 0;
	if (!reports_resource(task, BPF_CORE_READ(task, files), BPF_CORE_READ(task, group_leader, files)))
		return 0;
	owner_add(BPF_CORE_READ(file, private_data), task, fd);
	return 0;
}

/* begin reports whether the object is wanted, and fills in its holder. */
static __always_inline bool begin(struct event *e, const void *object, enum kind kind)
{
	struct owner *owner = bpf_map_lookup_elem(&owners, &object);

	e->task.uid = NO_UID;
	e->owner_uid = NO_UID;
	e->kind = kind;
	if (owner) {
		e->fd = owner->fd;
		e->holders = owner->holders;
		if (owner->task.pid)
			e->task = owner->task;
	}
	e->task.time_ns = bpf_ktime_get_boot_ns();
	return !task_filter || e->task.pid;
}

SEC("iter/bpf_prog")
int progs(struct bpf_iter__bpf_prog *ctx)
{
	struct bpf_prog *prog = ctx->prog;
	struct event e = {};

	if (!prog || !begin(&e, prog, KIND_PROG))
		return 0;
	e.id = BPF_CORE_READ(prog, aux, id);
	e.type = BPF_CORE_READ(prog, type);
	e.owner_uid = BPF_CORE_READ(prog, aux, user, uid.val);
	e.load_ns = BPF_CORE_READ(prog, aux, load_time);
	e.insns = BPF_CORE_READ(prog, len);
	e.jited_bytes = BPF_CORE_READ(prog, jited_len);
	BPF_CORE_READ_INTO(&e.tag, prog, tag);
	BPF_CORE_READ_STR_INTO(&e.name, prog, aux, name);
	e.measured = prog_counts_read(&e.counts, prog_stats(prog));
	list_send(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

SEC("iter/bpf_map")
int maps(struct bpf_iter__bpf_map *ctx)
{
	struct bpf_map *map = ctx->map;
	struct event e = {};

	if (!map || !begin(&e, map, KIND_MAP))
		return 0;
	e.id = BPF_CORE_READ(map, id);
	e.type = BPF_CORE_READ(map, map_type);
	e.key_size = BPF_CORE_READ(map, key_size);
	e.value_size = BPF_CORE_READ(map, value_size);
	e.max_entries = BPF_CORE_READ(map, max_entries);
	BPF_CORE_READ_STR_INTO(&e.name, map, name);
	list_send(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

SEC("iter/bpf_link")
int links(struct bpf_iter__bpf_link *ctx)
{
	struct bpf_link *link = ctx->link;
	struct event e = {};

	if (!link || !begin(&e, link, KIND_LINK))
		return 0;
	e.id = BPF_CORE_READ(link, id);
	e.type = BPF_CORE_READ(link, type);
	e.prog_id = BPF_CORE_READ(link, prog, aux, id);
	BPF_CORE_READ_STR_INTO(&e.name, link, prog, aux, name);
	list_send(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

/* The event of a probe. Kernels without CONFIG_EVENT_TRACING do not have the member. */
struct perf_event___traced {
	struct trace_event_call *tp_event;
} __attribute__((preserve_access_index));

/* The kind of probes with this name, of a PMU or of a group in tracefs. */
static __always_inline enum kind probe_kind(const char *addr, enum kind other)
{
	char name[8] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), addr);
	if (name[0] == 'k' && name[1] == 'p' && name[2] == 'r')
		return KIND_KPROBE;
	if (name[0] == 'u' && name[1] == 'p' && name[2] == 'r')
		return KIND_UPROBE;
	if (name[0] == 't' && name[1] == 'r' && name[2] == 'a' && name[3] == 'c' && name[4] == 'e')
		return KIND_TRACEPOINT;
	return other;
}

/* A perf event that runs a program. Old loaders create kprobes in tracefs, in groups of that name. */
static __always_inline enum kind perf_kind(struct perf_event *perf)
{
	struct perf_event___traced *traced = (void *)perf;
	enum kind kind;

	if (!BPF_CORE_READ(perf, prog))
		return KIND_NONE;
	kind = probe_kind(BPF_CORE_READ(perf, pmu, name), KIND_PERF_EVENT);
	if (kind == KIND_TRACEPOINT && bpf_core_field_exists(traced->tp_event))
		kind = probe_kind(BPF_CORE_READ(traced, tp_event, class, system), kind);
	return kind;
}

static __always_inline bool is_perf_event(struct file *file)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
	char name[6] = {};

	if (BPF_CORE_READ(dentry, d_parent) != dentry)
		return false;
	bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(dentry, d_name.name));
	return name[0] == '[' && name[1] == 'p' && name[2] == 'e' && name[3] == 'r' && name[4] == 'f' &&
	       name[5] == '_';
}

#define IS_LINK_TYPE(type, name)                                                           \
	(bpf_core_enum_value_exists(enum bpf_link_type, name) &&                           \
	 (type) == bpf_core_enum_value(enum bpf_link_type, name))

/* A link to many functions is as many probes; it has no perf events. */
static __always_inline void read_link(struct event *e, struct bpf_link *link)
{
	__u32 type = BPF_CORE_READ(link, type);

	e->kind = KIND_LINK;
	if (bpf_core_type_exists(struct bpf_kprobe_multi_link) &&
	    IS_LINK_TYPE(type, BPF_LINK_TYPE_KPROBE_MULTI)) {
		struct bpf_kprobe_multi_link *multi =
			(void *)link - bpf_core_field_offset(struct bpf_kprobe_multi_link, link);

		e->count = BPF_CORE_READ(multi, cnt);
		e->type = KIND_KPROBE;
	} else if (bpf_core_type_exists(struct bpf_uprobe_multi_link) &&
		   IS_LINK_TYPE(type, BPF_LINK_TYPE_UPROBE_MULTI)) {
		struct bpf_uprobe_multi_link *multi =
			(void *)link - bpf_core_field_offset(struct bpf_uprobe_multi_link, link);

		e->count = BPF_CORE_READ(multi, cnt);
		e->type = KIND_UPROBE;
	}
}

static __always_inline void read_held(struct event *e, struct file *file)
{
	e->kind = KIND_NONE;
	e->type = KIND_NONE;
	e->count = 1;
	switch (bpf_file(file)) {
	case 'p':
		e->kind = KIND_PROG;
		return;
	case 'm':
		e->kind = KIND_MAP;
		return;
	case 'l':
		read_link(e, BPF_CORE_READ(file, private_data));
		return;
	}
	if (is_perf_event(file))
		e->kind = perf_kind(BPF_CORE_READ(file, private_data));
}

/* Each open file of a wanted process that is an object, or a perf event that runs a program. */
SEC("iter/task_file")
int held(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct event e = {};

	if (!task || !file)
		return 0;
	read_held(&e, file);
	if (e.kind == KIND_NONE || !task_wanted(task))
		return 0;
	if (!reports_resource(task, BPF_CORE_READ(task, files), BPF_CORE_READ(task, group_leader, files)))
		return 0;
	task_info_read(&e.task, task);
	e.task.time_ns = bpf_ktime_get_boot_ns();
	e.fd = ctx->fd;
	list_send(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
