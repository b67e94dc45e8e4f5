/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __LIST_BPF_H
#define __LIST_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * list_send sends a row of an iterator: its size, then its bytes. User space reads while the
 * iterator runs, so there is no ring buffer, and nothing is lost: if a row does not fit, the kernel
 * discards everything that the program wrote for the object, and runs it again for the same object
 * after the rest has been read.
 */
static __always_inline long list_send(struct seq_file *seq, void *row, __u32 size)
{
	__u32 head = size; /* a copy, because the verifier would lose the bounds of size */
	long err = bpf_seq_write(seq, &head, sizeof(head));

	return err ? err : bpf_seq_write(seq, row, size);
}

#endif
