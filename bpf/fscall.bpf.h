/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FSCALL_BPF_H
#define __FSCALL_BPF_H

#include "syscall.bpf.h"

/* System calls of file systems, except for those of rw.bpf.h. */

enum fs_call {
	FS_CALL_NONE,
	FS_CALL_FSYNC,
	FS_CALL_OPEN,
	FS_CALL_UNLINK,
	FS_CALL_UNLINKAT, /* also removes directories */
	FS_CALL_MKDIR,
	FS_CALL_RMDIR,
};

#if defined(__TARGET_ARCH_x86)

/* arch/x86/entry/syscalls/syscall_64.tbl */
static __always_inline enum fs_call fs_call_native(__s32 nr)
{
	switch (nr) {
	case 74: /* fsync */
	case 75: /* fdatasync */
		return FS_CALL_FSYNC;
	case NR_open:
	case NR_creat:
	case NR_openat:
	case NR_openat2:
		return FS_CALL_OPEN;
	case 87: /* unlink */
		return FS_CALL_UNLINK;
	case 263: /* unlinkat */
		return FS_CALL_UNLINKAT;
	case 83: /* mkdir */
	case 258: /* mkdirat */
		return FS_CALL_MKDIR;
	case 84: /* rmdir */
		return FS_CALL_RMDIR;
	}
	return FS_CALL_NONE;
}

#define NR_compat_mkdirat 296
#define NR_compat_unlinkat 301

#elif defined(__TARGET_ARCH_arm64)

/* include/uapi/asm-generic/unistd.h */
static __always_inline enum fs_call fs_call_native(__s32 nr)
{
	switch (nr) {
	case 82: /* fsync */
	case 83: /* fdatasync */
		return FS_CALL_FSYNC;
	case NR_openat:
	case NR_openat2:
		return FS_CALL_OPEN;
	case 35: /* unlinkat */
		return FS_CALL_UNLINKAT;
	case 34: /* mkdirat */
		return FS_CALL_MKDIR;
	}
	return FS_CALL_NONE;
}

#define NR_compat_mkdirat 323
#define NR_compat_unlinkat 328

#endif

/* i386 and ARM have the same numbers, except for newer calls. */
static __always_inline enum fs_call fs_call_compat(__s32 nr)
{
	switch (nr) {
	case 118: /* fsync */
	case 148: /* fdatasync */
		return FS_CALL_FSYNC;
	case NR_compat_open:
	case NR_compat_creat:
	case NR_compat_openat:
	case NR_compat_openat2:
		return FS_CALL_OPEN;
	case 10: /* unlink */
		return FS_CALL_UNLINK;
	case NR_compat_unlinkat:
		return FS_CALL_UNLINKAT;
	case 39: /* mkdir */
	case NR_compat_mkdirat:
		return FS_CALL_MKDIR;
	case 40: /* rmdir */
		return FS_CALL_RMDIR;
	}
	return FS_CALL_NONE;
}

/* nr is without the x32 bit. */
static __always_inline enum fs_call fs_call(__s32 nr, bool compat)
{
	return compat ? fs_call_compat(nr) : fs_call_native(nr);
}

#endif
