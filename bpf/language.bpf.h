/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __LANGUAGE_BPF_H
#define __LANGUAGE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "compat.bpf.h"
#include "usdt.bpf.h"

/* Languages whose runtimes have probes. User space has the names (internal/language). */
enum language {
	LANGUAGE_NONE,
	LANGUAGE_JAVA,
	LANGUAGE_NODE,
	LANGUAGE_PERL,
	LANGUAGE_PHP,
	LANGUAGE_PYTHON,
	LANGUAGE_RUBY,
	LANGUAGE_TCL,
	LANGUAGE_C,
};

/* Keeps the type in the object, for comparison with the Go constants. */
const enum language *language_type __attribute__((unused));

/*
 * The function of V8 that collects garbage. Node.js has no USDT probes since version 19, and its own
 * builds never had them. The function exists in all versions: Heap::CollectGarbage(AllocationSpace,
 * GarbageCollectionReason, GCCallbackFlags), from V8 13 on with one more parameter.
 */
#define V8_COLLECT_GARBAGE                                                                                  \
	"_ZN2v88internal4Heap14CollectGarbageENS0_15AllocationSpaceENS0_23GarbageCollectionReason"         \
	"ENS_15GCCallbackFlagsE,"                                                                           \
	"_ZN2v88internal4Heap14CollectGarbageENS0_15AllocationSpaceENS0_23GarbageCollectionReason"         \
	"ENS_15GCCallbackFlagsENS1_21PerformHeapLimitCheckE"

/* Names are arguments of probes. This is the number of an argument that a probe does not have. */
#define NO_ARG USDT_ARGS_MAX

/* The longest name of which the end can be shown. */
#define LANGUAGE_TEXT_MAX 512

static __always_inline __u64 language_number(void *ctx, __u64 n)
{
	__u64 val = 0;

	usdt_arg(ctx, n, &val);
	return val;
}

/* The number of bits of the type of argument n, 0 if the argument does not exist. */
static __always_inline __u32 language_bits(void *ctx, __u64 n)
{
	__u32 nr = bpf_get_attach_cookie(ctx);
	struct usdt_spec *spec = bpf_map_lookup_elem(&usdt_specs, &nr);

	if (!spec || n >= USDT_ARGS_MAX || n >= spec->nr_args)
		return 0;
	return 64 - spec->args[n].drop;
}

/*
 * Reads the name whose address is argument n; its buffer is zeroed. Of a longer name, the buffer
 * has the end, because that distinguishes the names of files and classes, and no NUL byte. text is
 * memory of LANGUAGE_TEXT_MAX bytes. The names of Java have no NUL byte: the next argument is the
 * length.
 */
static __always_inline void language_name(void *ctx, enum language language, __u64 n, char *name, __u32 size,
					  char *text)
{
	const char *from = (const char *)language_number(ctx, n);
	__u64 len;
	long read;

	if (!from)
		return;
	if (language == LANGUAGE_JAVA) {
		len = (__u32)language_number(ctx, n + 1);
		if (len > size) {
			from += len - size;
			len = size;
		}
		bpf_probe_read_user(name, len, from);
		return;
	}
	read = read_user_str(text, LANGUAGE_TEXT_MAX, from);
	if (read > (long)size)
		bpf_probe_read_user(name, size, from + (read - 1 - size));
	else if (read > 0)
		bpf_probe_read_user_str(name, size, from);
}

/* The same, but the buffer has the start of a longer name. */
static __always_inline void language_name_start(void *ctx, enum language language, __u64 n, char *name, __u32 size)
{
	const char *from = (const char *)language_number(ctx, n);
	__u64 len;

	if (!from)
		return;
	if (language != LANGUAGE_JAVA) {
		bpf_probe_read_user_str(name, size, from);
		return;
	}
	len = (__u32)language_number(ctx, n + 1);
	if (len > size)
		len = size;
	bpf_probe_read_user(name, len, from);
}

/* A number that identifies a name of this size, a multiple of 8 bytes. */
static __always_inline __u64 language_hash(__u64 hash, const void *name, __u32 size)
{
	const __u64 *words = name;

	for (int i = 0; i < size / 8; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash;
}

#endif
