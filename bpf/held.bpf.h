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
 * What is held, from when it is taken until it is given back: a struct held_value for each
 * thing. The tool defines that before it includes this. User space reads all that is held
 * whenever it reports.
 */

struct held_key {
	__u64 id; /* of the thing, as its address */
	__u32 pid; /* the process that has it in its memory, 0 for the kernel */
	__u32 image; /* the program of that process, see images */
};

/*
 * All entries are allocated at once: this may be called wherever the kernel allocates or
 * frees memory itself, with interrupts off for long.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__type(key, struct held_key);
	__type(value, struct held_value);
} held SEC(".maps") USER_SPACE;

/* How many programs a process has executed meanwhile: each exec takes all memory away. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} images SEC(".maps") USER_SPACE;

/*
 * PIDs in the PID namespace of user space, 0 for none, by those in the initial one. Empty where
 * they are the same.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u32);
	__type(value, __u32);
} held_pids SEC(".maps") USER_SPACE;

/* Set by user space when all is attached: until then what is given back may not be seen. */
bool held_begun;

/* held_by_current is the key of what the current process has. */
static __always_inline struct held_key held_by_current(__u64 id)
{
	struct held_key key = { .id = id, .pid = bpf_get_current_pid_tgid() >> 32 };
	__u32 *image = bpf_map_lookup_elem(&images, &key.pid);

	if (image)
		key.image = *image;
	return key;
}

/* A PID can be reused, so the current process's is compared each time. */
static __always_inline void held_note_pid(__u32 pid)
{
	__u32 local, *known;

	if (!local_pidns || !pid)
		return;
	local = task_local_pid(task_current());
	known = bpf_map_lookup_elem(&held_pids, &pid);
	if ((!known || *known != local) && bpf_map_update_elem(&held_pids, &pid, &local, BPF_ANY))
		lost_add(map_full);
}

/*
 * held_put puts a thing in. It returns true if it was there already: then it was given back
 * unseen, and what was known of it is replaced.
 */
static __always_inline bool held_put(const struct held_key *key, const struct held_value *value)
{
	bool known = false;

	if (!held_begun)
		return false;
	held_note_pid(key->pid);
	if (!bpf_map_update_elem(&held, key, value, BPF_NOEXIST))
		return false;
	known = bpf_map_lookup_elem(&held, key);
	if (bpf_map_update_elem(&held, key, value, BPF_ANY))
		lost_add(map_full);
	return known;
}

/* held_take takes a thing out, and returns false if it was not there. */
static __always_inline bool held_take(const struct held_key *key, struct held_value *value)
{
	struct held_value *there = bpf_map_lookup_elem(&held, key);

	if (!there)
		return false;
	*value = *there;
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

#endif
