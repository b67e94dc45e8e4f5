/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __MAP_BPF_H
#define __MAP_BPF_H

/*
 * A map that user space reads or writes. It is created before the programs are loaded; others
 * are created with the first program that uses them, so that one which is not loaded costs no
 * memory. Kernels before 5.16 do not know the tag: the loader leaves it out there.
 */
#define USER_SPACE __attribute__((btf_decl_tag("user_space")))

#endif
