/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __DCACHE_BPF_H
#define __DCACHE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "task.bpf.h"

/*
 * Lookups in the directory cache: lookup_fast(), for each component of a path, and d_lookup(), where
 * the kernel cannot or must not use it. The tool defines the functions that are called for them, in
 * the context of tasks that are wanted.
 */

/* name is the component. */
static __always_inline void dcache_fast(void *ctx, const struct qstr *name);
static __always_inline void dcache_slow(void *ctx, const struct qstr *name, bool found);

struct call {
	const struct qstr *name;
};

#include "call.bpf.h"

static __always_inline int handle_fast(void *ctx, struct nameidata *nd)
{
	if (task_current_wanted())
		dcache_fast(ctx, __builtin_preserve_access_index(&nd->last));
	return 0;
}

static __always_inline int handle_slow(void *ctx, const struct qstr *name, const void *found)
{
	if (task_current_wanted())
		dcache_slow(ctx, name, found);
	return 0;
}

/* The compiler can have specialized the static function, so user space finds its name. */
SEC("fentry")
int BPF_PROG(fast__fentry)
{
	return handle_fast(ctx, (void *)ctx[0]);
}

SEC("kprobe")
int fast__kprobe(struct pt_regs *ctx)
{
	return handle_fast(ctx, (void *)PT_REGS_PARM1(ctx));
}

SEC("fexit/d_lookup")
int BPF_PROG(slow__fentry, const struct dentry *parent, const struct qstr *name, struct dentry *found)
{
	return handle_slow(ctx, name, found);
}

SEC("kprobe/d_lookup")
int BPF_KPROBE(slow__kprobe__begin, const struct dentry *parent, const struct qstr *name)
{
	struct call *c = call_begin(frame_at_begin(ctx));

	if (c)
		c->name = name;
	return 0;
}

SEC("kretprobe/d_lookup")
int BPF_KRETPROBE(slow__kprobe__end, const void *found)
{
	struct call call;
	bool nested;

	if (!call_end(frame_at_end(ctx), &call, &nested))
		return 0;
	return handle_slow(ctx, call.name, found);
}

#endif
