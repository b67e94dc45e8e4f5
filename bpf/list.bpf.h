/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __LIST_BPF_H
#define __LIST_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * list_send gives user space a row of an iterator: its size, then its bytes. User space
 * reads as the iterator goes on, so there is no ring, and nothing is lost: where a row
 * does not fit any more, the kernel drops all that the program wrote for the object, and
 * calls it again for the same object when the rest has been read.
 */
static __always_inline long list_send(struct seq_file *seq, void *row, __u32 size)
{
	__u32 head = size; /* not size itself, whose bounds the verifier would lose */
	long err = bpf_seq_write(seq, &head, sizeof(head));

	return err ? err : bpf_seq_write(seq, row, size);
}

#endif
