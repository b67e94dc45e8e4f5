/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __COMPAT_BPF_H
#define __COMPAT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/*
 * Differences between kernels, each with the commit that introduced it. They are detected with the
 * kernel's BTF.
 */

/* Scheduler */

/* Until 5.14, and in RHEL 8, the state of a task is a long with another name (2f064a59a11f). */
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

/* task_state() without a helper call, for a pointer that the verifier knows to be a task. */
#define TASK_STATE(p)                                                        \
	(bpf_core_field_exists((p)->__state) ? (long)(p)->__state :          \
					       ((struct task_struct___state *)(p))->state)

/* Programs */

struct nonexistent {
	int member;
} __attribute__((preserve_access_index));

/*
 * Makes the verifier reject a program in kernels that have the type, because the program would miss
 * some events there: the offset of a member that no kernel has cannot be relocated.
 */
static __always_inline __u32 nonexistent_offset(void)
{
	return bpf_core_field_offset(struct nonexistent, member);
}

#define REJECT_IF_TYPE_EXISTS(type)                                       \
	do {                                                              \
		if (bpf_core_type_exists(type)) {                         \
			volatile __u32 offset = nonexistent_offset();     \
                                                                          \
			(void)offset;                                     \
		}                                                         \
	} while (0)

/*
 * From 7.0 on (a46023d5616e) programs of tracepoints can be preempted. While one is preempted, the
 * kernel skips its runs for other tasks on that CPU, and their events are lost (program_busy). Three
 * measures keep that rare:
 *
 * - Programs of perf's tracepoints (attach type tp) are not preempted. User space tries them first
 *   on these kernels.
 * - Other programs exist twice (names that end in __again), so that the second one runs for events
 *   that the first one is skipped for.
 * - These functions disable preemption for the long part of a program. A task that is due to run
 *   then waits until the end of that part, so two tasks do not use the same scratch memory. The
 *   program still counts as running while it is preempted at the end.
 *
 * In other kernels the calls are dead code: the kernel has the functions from 6.10 on, but rejects
 * calls of global functions between them until 6.14 (e2d8f560d1aa). The type is that of the guard
 * that replaced disabling preemption.
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
 * From 5.12 on (549c7297717c) getattr and similar inode operations have an additional first
 * argument for the ID mapping of the mount: a user namespace, and from 6.3 on (b74d24f7a74f) a
 * struct mnt_idmap.
 */
struct vfsmount___ids {
	void *mnt_userns;
	void *mnt_idmap;
} __attribute__((preserve_access_index));

#define FS_CALLS_HAVE_IDMAP                                               \
	(bpf_core_field_exists(((struct vfsmount___ids *)0)->mnt_userns) || \
	 bpf_core_field_exists(((struct vfsmount___ids *)0)->mnt_idmap))

/* Memory */

/*
 * read_user_str reads a string of the current task and returns its length including the NUL byte.
 * Until 6.13 the helper returns 0 for an empty string, and writes no NUL byte ("maccess: fix
 * strncpy_from_user_nofault() empty string handling").
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
 * While a program is interrupted, the kernel skips its runs for the interrupt handler and for the
 * softirqs after it, such as a batch of RCU callbacks (6.1 and later, 05b24ff9b2cf). From 6.14 on
 * (c8e2ee1f3df0) programs can disable interrupts.
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
