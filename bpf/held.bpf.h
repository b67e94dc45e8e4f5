/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __HELD_BPF_H
#define __HELD_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"
#include "map.bpf.h"
#include "task.bpf.h"

/*
 * Resources that are held, from acquisition to release, with a struct held_value each. The tool
 * defines that struct before it includes this header. User space reads all entries for each report.
 */

struct held_key {
	__u64 id; /* of the resource, such as its address */
	__u32 pid; /* process whose memory it is in, 0 for the kernel */
	__u32 image; /* number of execs of that process, see images */
};

/*
 * Entries are preallocated, because programs run wherever the kernel allocates and frees memory,
 * also with interrupts disabled.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__type(key, struct held_key);
	__type(value, struct held_value);
} held SEC(".maps") USER_SPACE;

/* Number of programs that a process has executed during the run. Each exec releases all memory. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} images SEC(".maps") USER_SPACE;

/*
 * PIDs in the PID namespace of user space (0 for none), by PID in the initial one. Empty if both
 * are the same namespace.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, __u32);
} held_pids SEC(".maps") USER_SPACE;

/* Set by user space when all programs are attached: before that, a release might be missed. */
bool held_begun;

/* held_by_current returns the key of a resource of the current process. */
static __always_inline struct held_key held_by_current(__u64 id)
{
	struct held_key key = { .id = id, .pid = bpf_get_current_pid_tgid() >> 32 };
	__u32 *image = bpf_map_lookup_elem(&images, &key.pid);

	if (image)
		key.image = *image;
	return key;
}

/* A PID can be reused, so the PID of the current process is compared each time. */
static __always_inline void held_note_pid(__u32 pid)
{
	__u32 local, *stored;

	if (!local_pidns || !pid)
		return;
	local = task_local_pid(task_current());
	stored = bpf_map_lookup_elem(&held_pids, &pid);
	if ((!stored || *stored != local) && bpf_map_update_elem(&held_pids, &pid, &local, BPF_ANY))
		lost_add(map_full);
}

/*
 * held_put adds a resource. It returns true if there was an entry, whose release was not observed:
 * then that is replaced.
 */
static __always_inline bool held_put(const struct held_key *key, const struct held_value *value)
{
	bool replaced = false;

	if (!held_begun)
		return false;
	held_note_pid(key->pid);
	if (!bpf_map_update_elem(&held, key, value, BPF_NOEXIST))
		return false;
	replaced = bpf_map_lookup_elem(&held, key);
	if (bpf_map_update_elem(&held, key, value, BPF_ANY))
		lost_add(map_full);
	return replaced;
}

/* held_take removes a resource, and returns false if there was no entry. */
static __always_inline bool held_take(const struct held_key *key, struct held_value *value)
{
	struct held_value *entry = bpf_map_lookup_elem(&held, key);

	if (!entry)
		return false;
	*value = *entry;
	bpf_map_delete_elem(&held, key);
	return true;
}

static __always_inline int held_exec(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, first = 1;
	__u32 *image;

	if (!task_current_wanted())
		return 0;
	image = bpf_map_lookup_elem(&images, &pid);
	if (image)
		__sync_fetch_and_add(image, 1);
	else if (bpf_map_update_elem(&images, &pid, &first, BPF_ANY))
		lost_add(map_full);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec__btf)
{
	return held_exec();
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(exec__raw)
{
	return held_exec();
}

SEC("tp/sched/sched_process_exec")
int exec__tp(void *ctx)
{
	return held_exec();
}

#endif
