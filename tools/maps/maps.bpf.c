// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "file.bpf.h"
#include "holder.bpf.h"
#include "list.bpf.h"
#include "task.bpf.h"

#define VM_WRITE 0x2
#define VM_EXEC 0x4

/* Only executable mappings; only writable and executable ones. */
const volatile bool targ_exec = false;
const volatile bool targ_wx = false;

enum kind {
	KIND_ANON,
	KIND_FILE,
	KIND_HEAP,
	KIND_STACK,
	KIND_NAMED, /* anonymous, named by the process */
	KIND_SPECIAL, /* of the kernel, such as [vdso] */
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum kind *kind_type __attribute__((unused));

struct event {
	struct task_info task;
	__u64 start;
	__u64 end;
	__u64 offset_pages;
	__u64 flags;
	__u32 kind; /* enum kind */
	__u32 pad;
	struct file_info file;
	char data[PATH_BUF_SIZE]; /* names of the path, or the name of the mapping */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} scratch SEC(".maps");

/* From 5.17 on (9a10064f5625), with CONFIG_ANON_VMA_NAME. */
struct vm_area_struct___named {
	struct anon_vma_name *anon_name;
};

static __always_inline const char *given_name(struct vm_area_struct *vma)
{
	struct vm_area_struct___named *named = (void *)vma;
	struct anon_vma_name *name;

	if (!bpf_core_field_exists(named->anon_name))
		return NULL;
	name = BPF_CORE_READ(named, anon_name);
	return name ? (void *)name + bpf_core_field_offset(struct anon_vma_name, name) : NULL;
}

/* A special mapping has operations instead of a file; its private data begins with its name. */
static __always_inline const char *special_name(struct vm_area_struct *vma)
{
	struct vm_special_mapping *special = BPF_CORE_READ(vma, vm_private_data);

	if (!BPF_CORE_READ(vma, vm_ops) || !special)
		return NULL;
	return BPF_CORE_READ(special, name);
}

static __always_inline void read_name(struct event *e, const char *name, enum kind kind)
{
	long n = bpf_probe_read_kernel_str(e->data, NAME_MAX + 1, name);

	if (n <= 1)
		return;
	e->file.path.len = n;
	e->kind = kind;
}

/* Classifies mappings as the kernel does in /proc/PID/maps. */
static __always_inline void read_kind(struct event *e, struct vm_area_struct *vma,
				      struct mm_struct *mm)
{
	const char *given = given_name(vma), *special = special_name(vma);
	__u64 stack = BPF_CORE_READ(mm, start_stack);

	if (given)
		read_name(e, given, KIND_NAMED);
	else if (e->start < BPF_CORE_READ(mm, brk) && e->end > BPF_CORE_READ(mm, start_brk))
		e->kind = KIND_HEAP;
	else if (e->start <= stack && e->end >= stack)
		e->kind = KIND_STACK;
	else if (special)
		read_name(e, special, KIND_SPECIAL);
}

static __always_inline bool flags_wanted(__u64 flags)
{
	if (targ_wx && (flags & (VM_WRITE | VM_EXEC)) != (VM_WRITE | VM_EXEC))
		return false;
	return !targ_exec || flags & VM_EXEC;
}

SEC("iter/task_vma")
int areas(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	__u32 zero = 0, len;
	struct mm_struct *mm;
	struct file *file;
	struct event *e;

	if (!task || !vma || !flags_wanted(BPF_CORE_READ(vma, vm_flags)) || !task_wanted(task))
		return 0;
	mm = BPF_CORE_READ(task, mm);
	e = bpf_map_lookup_elem(&scratch, &zero);
	if (!e || !reports_resource(task, mm, BPF_CORE_READ(task, group_leader, mm)))
		return 0;
	__builtin_memset(e, 0, offsetof(struct event, data));
	task_info_read(&e->task, task);
	e->task.time_ns = bpf_ktime_get_boot_ns();
	e->start = BPF_CORE_READ(vma, vm_start);
	e->end = BPF_CORE_READ(vma, vm_end);
	e->flags = BPF_CORE_READ(vma, vm_flags);
	file = BPF_CORE_READ(vma, vm_file);
	if (file) {
		e->kind = KIND_FILE;
		e->offset_pages = BPF_CORE_READ(vma, vm_pgoff);
		file_info_read(&e->file, e->data, __builtin_preserve_access_index(&file->f_path));
	} else {
		read_kind(e, vma, mm);
	}
	len = e->file.path.len;
	if (len <= PATH_BUF_SIZE)
		list_send(ctx->meta->seq, e, offsetof(struct event, data) + len);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
