/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __MAP_BPF_H
#define __MAP_BPF_H

#include "vmlinux.h"

/*
 * A map that user space reads or writes. It is created before the programs are loaded. Other maps
 * are created with the first program that uses them, so maps of programs that are not loaded take
 * no memory. Kernels before 5.16 do not support the tag; the loader removes it there.
 */
#define USER_SPACE __attribute__((btf_decl_tag("user_space")))

/*
 * Whether an update with BPF_NOEXIST failed because the key exists already. Until 6.4
 * (d7ba4cc900bf) only the lower 32 bits of the result are valid.
 */
static __always_inline bool map_has_key(long err)
{
	return (int)err == -17; /* -EEXIST */
}

#endif
