/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __LOOP_BPF_H
#define __LOOP_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * loop_while calls step with i from 0 to max - 1, until it returns false. The verifier walks each
 * iteration of a usual loop, but only two or three of a loop with an iterator, which all types of
 * programs can use from 6.4 on (6018e1f407cc). It does not know the maximum of i. A state that has
 * other known values in each iteration is walked for each, as in a usual loop, but more slowly: it
 * can take minutes, during which the process cannot be killed.
 */
static __always_inline void loop_while(__u32 max, bool (*const step)(void *state, __u32 i), void *state)
{
	struct bpf_iter_num numbers;
	int *i;

	if (!bpf_iter_num_new) {
		for (__u32 k = 0; k < max; k++)
			if (!step(state, k))
				break;
		return;
	}
	bpf_iter_num_new(&numbers, 0, max);
	while ((i = bpf_iter_num_next(&numbers)))
		if (!step(state, *i))
			break;
	bpf_iter_num_destroy(&numbers);
}

#endif
