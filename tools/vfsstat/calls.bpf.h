/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __CALLS_BPF_H
#define __CALLS_BPF_H

#include "syscall.bpf.h"

/* The system calls that are counted, but for those of rw.bpf.h. */

enum call {
	CALL_NONE,
	CALL_FSYNC,
	CALL_OPEN,
	CALL_UNLINK,
	CALL_UNLINKAT, /* which removes directories too */
	CALL_MKDIR,
	CALL_RMDIR,
};

#if defined(__TARGET_ARCH_x86)

/* arch/x86/entry/syscalls/syscall_64.tbl */
static __always_inline enum call call_of_native(__s32 nr)
{
	switch (nr) {
	case 74: /* fsync */
	case 75: /* fdatasync */
		return CALL_FSYNC;
	case NR_open:
	case NR_creat:
	case NR_openat:
	case NR_openat2:
		return CALL_OPEN;
	case 87: /* unlink */
		return CALL_UNLINK;
	case 263: /* unlinkat */
		return CALL_UNLINKAT;
	case 83: /* mkdir */
	case 258: /* mkdirat */
		return CALL_MKDIR;
	case 84: /* rmdir */
		return CALL_RMDIR;
	}
	return CALL_NONE;
}

#define NR_compat_mkdirat 296
#define NR_compat_unlinkat 301

#elif defined(__TARGET_ARCH_arm64)

/* include/uapi/asm-generic/unistd.h */
static __always_inline enum call call_of_native(__s32 nr)
{
	switch (nr) {
	case 82: /* fsync */
	case 83: /* fdatasync */
		return CALL_FSYNC;
	case NR_openat:
	case NR_openat2:
		return CALL_OPEN;
	case 35: /* unlinkat */
		return CALL_UNLINKAT;
	case 34: /* mkdirat */
		return CALL_MKDIR;
	}
	return CALL_NONE;
}

#define NR_compat_mkdirat 323
#define NR_compat_unlinkat 328

#endif

/* i386 and ARM have the same numbers but for the newer calls. */
static __always_inline enum call call_of_compat(__s32 nr)
{
	switch (nr) {
	case 118: /* fsync */
	case 148: /* fdatasync */
		return CALL_FSYNC;
	case NR_compat_open:
	case NR_compat_creat:
	case NR_compat_openat:
	case NR_compat_openat2:
		return CALL_OPEN;
	case 10: /* unlink */
		return CALL_UNLINK;
	case NR_compat_unlinkat:
		return CALL_UNLINKAT;
	case 39: /* mkdir */
	case NR_compat_mkdirat:
		return CALL_MKDIR;
	case 40: /* rmdir */
		return CALL_RMDIR;
	}
	return CALL_NONE;
}

#endif
