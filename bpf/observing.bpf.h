/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __OBSERVING_BPF_H
#define __OBSERVING_BPF_H

#include "vmlinux.h"

/*
 * User space sets this when all programs are attached, and clears it before it detaches them.
 *
 * Programs are attached and detached one after the other. Meanwhile the start of an operation can
 * be observed and its end not, or the other way round. Neither is a lost event: the operation does
 * not belong to the run. So a program that notes a start does not do so while this is false, and a
 * program that finds an end without a start counts it as lost (unobserved) only if a start that it
 * would have found must have been observed.
 */
bool observing;

#endif
