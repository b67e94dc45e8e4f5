/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __VMLINUX_DISPATCH_H__
#define __VMLINUX_DISPATCH_H__

#if defined(__TARGET_ARCH_x86)
#include "vmlinux_amd64.h"
#elif defined(__TARGET_ARCH_arm64)
#include "vmlinux_arm64.h"
#else
#error "define __TARGET_ARCH_x86 or __TARGET_ARCH_arm64 (bpf2go does, given -target)"
#endif

#endif
