/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __COMPAT_BPF_H
#define __COMPAT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/*
 * What differs between kernels: each with the commit that changed it, and found by
 * looking into the kernel's types.
 */

/* Scheduler */

/* task_struct.state was a long until 5.14 (2f064a59a11f); RHEL 8 has that too. */
struct task_struct___state {
	long state;
} __attribute__((preserve_access_index));

static __always_inline long task_state(struct task_struct *p)
{
	struct task_struct___state *old = (void *)p;

	if (bpf_core_field_exists(p->__state))
		return BPF_CORE_READ(p, __state);
	return BPF_CORE_READ(old, state);
}

/* The same without a helper's call, for a task that the verifier knows as such. */
#define TASK_STATE(p)                                                        \
	(bpf_core_field_exists((p)->__state) ? (long)(p)->__state :          \
					       ((struct task_struct___state *)(p))->state)

/* Programs */

struct in_no_kernel {
	int member;
} __attribute__((preserve_access_index));

/*
 * For programs that would see a part only where the kernel has the type: there the
 * verifier comes to the place of a member that no kernel has, and refuses them.
 */
static __always_inline __u32 place_in_no_kernel(void)
{
	return bpf_core_field_offset(struct in_no_kernel, member);
}

#define ONLY_WITHOUT(type)                                                \
	do {                                                              \
		if (bpf_core_type_exists(type)) {                         \
			volatile __u32 nowhere = place_in_no_kernel();    \
                                                                          \
			(void)nowhere;                                    \
		}                                                         \
	} while (0)

/*
 * From 7.0 on (a46023d5616e) a tracepoint's program can be preempted. Until it goes on,
 * the kernel leaves out its runs for other tasks on that CPU, and what those did is lost
 * (program_busy). Around the part that takes long, this keeps the time in which that can
 * happen to nanoseconds.
 *
 * Elsewhere the calls are dead code: the kernel has the functions from 6.10 on, but
 * allows no global function between them until 6.14 (e2d8f560d1aa). The type is that
 * of the guard which replaced the one against preemption.
 */
#define TRACEPOINTS_ARE_PREEMPTIBLE bpf_core_type_exists(class_srcu_fast_notrace_t)

static __always_inline void preempt_off(void)
{
	if (TRACEPOINTS_ARE_PREEMPTIBLE && bpf_preempt_disable)
		bpf_preempt_disable();
}

static __always_inline void preempt_on(void)
{
	if (TRACEPOINTS_ARE_PREEMPTIBLE && bpf_preempt_enable)
		bpf_preempt_enable();
}

#define NOT_PREEMPTED(call)            \
	({                             \
		int __ret;             \
                                       \
		preempt_off();         \
		__ret = (call);        \
		preempt_on();          \
		__ret;                 \
	})

/* File systems */

/*
 * From 5.12 on (549c7297717c) getattr and its like are first told how the mount maps ids,
 * by the user namespace that the mount then has, and from 6.3 on (b74d24f7a74f) by what has
 * replaced it.
 */
struct vfsmount___ids {
	void *mnt_userns;
	void *mnt_idmap;
} __attribute__((preserve_access_index));

#define FS_CALLS_MAP_IDS                                                  \
	(bpf_core_field_exists(((struct vfsmount___ids *)0)->mnt_userns) || \
	 bpf_core_field_exists(((struct vfsmount___ids *)0)->mnt_idmap))

/* Memory */

/*
 * read_user_str returns the length of a task's string with its NUL. Until 6.13 an empty
 * one had length 0, and no NUL ("maccess: fix strncpy_from_user_nofault() empty string
 * handling").
 */
static __always_inline long read_user_str(char *dst, __u32 size, const void *src)
{
	long len = bpf_probe_read_user_str(dst, size, src);

	if (len)
		return len;
	dst[0] = 0;
	return 1;
}

/* Interrupts */

/*
 * A program that is interrupted is left out for whatever the interrupt does, and for the
 * softirqs that follow on it, as a whole batch of RCU's callbacks (6.1 and later,
 * 05b24ff9b2cf). From 6.14 on (c8e2ee1f3df0) it can have interrupts wait.
 */
#define UNINTERRUPTED(call)                        \
	({                                         \
		unsigned long __flags;             \
		int __ret;                         \
                                                   \
		if (bpf_local_irq_save) {          \
			bpf_local_irq_save(&__flags);    \
			__ret = (call);            \
			bpf_local_irq_restore(&__flags); \
		} else {                           \
			__ret = NOT_PREEMPTED(call); \
		}                                  \
		__ret;                             \
	})

#endif
