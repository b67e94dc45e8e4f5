/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __RW_BPF_H
#define __RW_BPF_H

#include "vmlinux.h"
#include "syscall.bpf.h"

/*
 * System calls that transfer bytes from or to files and return their number: read, pread64, readv,
 * preadv, preadv2, the same for write, sendfile, splice and copy_file_range.
 */

/* Indexes of the arguments that are descriptors, for 64-bit and 32-bit tasks. */
struct rw_call {
	__s8 from; /* read from, -1 for none */
	__s8 to; /* written to, -1 for none */
};

#define RW_NONE { -1, -1 }
#define RW_READ { 0, -1 }
#define RW_WRITE { -1, 0 }
#define RW_SENDFILE { 1, 0 }
#define RW_COPY { 0, 2 }

#define RW_CASES(arch)                                                                      \
	case arch##_read:                                                                   \
	case arch##_pread64:                                                                \
	case arch##_readv:                                                                  \
	case arch##_preadv:                                                                 \
	case arch##_preadv2:                                                                \
		return (struct rw_call)RW_READ;                                             \
	case arch##_write:                                                                  \
	case arch##_pwrite64:                                                               \
	case arch##_writev:                                                                 \
	case arch##_pwritev:                                                                \
	case arch##_pwritev2:                                                               \
		return (struct rw_call)RW_WRITE;                                            \
	case arch##_sendfile:                                                               \
		return (struct rw_call)RW_SENDFILE;                                         \
	case arch##_splice:                                                                 \
	case arch##_copy_file_range:                                                        \
		return (struct rw_call)RW_COPY

#if defined(__TARGET_ARCH_x86)

enum { /* arch/x86/entry/syscalls/syscall_64.tbl; numbers from 512 on are of x32 */
	RW_read = 0,
	RW_write = 1,
	RW_pread64 = 17,
	RW_pwrite64 = 18,
	RW_readv = 19,
	RW_writev = 20,
	RW_sendfile = 40,
	RW_splice = 275,
	RW_preadv = 295,
	RW_pwritev = 296,
	RW_copy_file_range = 326,
	RW_preadv2 = 327,
	RW_pwritev2 = 328,
	RW_x32_readv = 515,
	RW_x32_writev = 516,
	RW_x32_preadv = 534,
	RW_x32_pwritev = 535,
	RW_x32_preadv2 = 546,
	RW_x32_pwritev2 = 547,
};

enum { /* arch/x86/entry/syscalls/syscall_32.tbl */
	RW_compat_preadv = 333,
	RW_compat_pwritev = 334,
	RW_compat_splice = 313,
	RW_compat_copy_file_range = 377,
	RW_compat_preadv2 = 378,
	RW_compat_pwritev2 = 379,
};

#elif defined(__TARGET_ARCH_arm64)

enum { /* include/uapi/asm-generic/unistd.h */
	RW_read = 63,
	RW_write = 64,
	RW_readv = 65,
	RW_writev = 66,
	RW_pread64 = 67,
	RW_pwrite64 = 68,
	RW_preadv = 69,
	RW_pwritev = 70,
	RW_sendfile = 71,
	RW_splice = 76,
	RW_copy_file_range = 285,
	RW_preadv2 = 286,
	RW_pwritev2 = 287,
};

enum { /* arch/arm64/tools/syscall_32.tbl */
	RW_compat_splice = 340,
	RW_compat_preadv = 361,
	RW_compat_pwritev = 362,
	RW_compat_copy_file_range = 391,
	RW_compat_preadv2 = 392,
	RW_compat_pwritev2 = 393,
};

#endif

enum { /* the same for i386 and ARM */
	RW_compat_read = 3,
	RW_compat_write = 4,
	RW_compat_readv = 145,
	RW_compat_writev = 146,
	RW_compat_pread64 = 180,
	RW_compat_pwrite64 = 181,
	RW_compat_sendfile = 187,
	RW_compat_sendfile64 = 239,
};

static __always_inline struct rw_call rw_call_compat(__s32 nr)
{
	switch (nr) {
		RW_CASES(RW_compat);
	case RW_compat_sendfile64:
		return (struct rw_call)RW_SENDFILE;
	}
	return (struct rw_call)RW_NONE;
}

/* nr is without the x32 bit. */
static __always_inline struct rw_call rw_call(__s32 nr, bool compat)
{
	if (compat)
		return rw_call_compat(nr);
	switch (nr) {
		RW_CASES(RW);
#if defined(__TARGET_ARCH_x86)
	case RW_x32_readv:
	case RW_x32_preadv:
	case RW_x32_preadv2:
		return (struct rw_call)RW_READ;
	case RW_x32_writev:
	case RW_x32_pwritev:
	case RW_x32_pwritev2:
		return (struct rw_call)RW_WRITE;
#endif
	}
	return (struct rw_call)RW_NONE;
}

#endif
