/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __IOVEC_BPF_H
#define __IOVEC_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * Data that a system call transferred, in the memory of the task: in one buffer, or in several that
 * an array of struct iovec describes.
 */
struct user_data {
	__u64 base; /* address of the buffer, or of the array */
	__u32 size; /* bytes that were transferred */
	__u32 count; /* elements of the array */
	bool is_vector;
	bool is_32bit; /* layout of the elements */
	__u8 pad[6];
};

#ifndef IOVEC_BYTES
#define IOVEC_BYTES 1024 /* only the beginning of longer data is read */
#endif
#define IOVEC_MAX 8 /* buffers that are read */

/* struct msghdr up to the number of buffers, for 64-bit and 32-bit tasks. */
struct user_msghdr64 {
	__u64 name;
	__u64 name_len;
	__u64 iov;
	__u64 iov_len;
};

struct user_msghdr32 {
	__u32 name;
	__u32 name_len;
	__u32 iov;
	__u32 iov_len;
};

/*
 * user_msghdr_read finds the data of a struct msghdr, of which size bytes were transferred. Returns
 * the address of the peer's address, or 0.
 */
static __always_inline __u64 user_msghdr_read(struct user_data *d, const void *addr, __u32 size,
					      bool is_32bit)
{
	struct user_msghdr64 msg = {};
	struct user_msghdr32 msg32 = {};

	if (is_32bit) {
		bpf_probe_read_user(&msg32, sizeof(msg32), addr);
		msg.name = msg32.name;
		msg.iov = msg32.iov;
		msg.iov_len = msg32.iov_len;
	} else {
		bpf_probe_read_user(&msg, sizeof(msg), addr);
	}
	*d = (struct user_data){
		.base = msg.iov,
		.size = size,
		.count = msg.iov_len,
		.is_vector = true,
		.is_32bit = is_32bit,
	};
	return msg.name;
}

static __always_inline bool user_iovec_read(__u64 *base, __u64 *len, const struct user_data *d, __u32 i)
{
	__u32 iov32[2] = {};
	__u64 iov[2] = {};

	if (d->is_32bit) {
		if (bpf_probe_read_user(&iov32, sizeof(iov32), (const void *)(d->base + i * sizeof(iov32))))
			return false;
		*base = iov32[0];
		*len = iov32[1];
		return true;
	}
	if (bpf_probe_read_user(&iov, sizeof(iov), (const void *)(d->base + i * sizeof(iov))))
		return false;
	*base = iov[0];
	*len = iov[1];
	return true;
}

/*
 * The data, with space for the verifier, which bounds offset and length separately. The length is in
 * memory while the data is read: it would make states of the verifier differ in a register.
 */
struct user_bytes {
	char data[2 * IOVEC_BYTES];
	__u32 len;
	__u32 pad;
};

/* Returns false if the memory cannot be read. */
static __always_inline bool user_bytes_add(struct user_bytes *to, const struct user_data *d, __u32 i)
{
	volatile __u32 *done = &to->len;
	__u32 at = *done, n;
	__u64 base, len;

	if (at >= d->size)
		return true;
	if (!user_iovec_read(&base, &len, d, i))
		return false;
	n = d->size - at;
	if (n > len)
		n = len;
	barrier_var(n);
	if (n > IOVEC_BYTES)
		n = IOVEC_BYTES;
	barrier_var(at);
	if (at >= IOVEC_BYTES)
		return true;
	if (bpf_probe_read_user(to->data + at, n, (const void *)base))
		return false;
	*done = at + n;
	return true;
}

/*
 * user_data_read reads the data, or its first IOVEC_BYTES. Returns their number, or -1 if the memory
 * cannot be read, or they are not all in the first IOVEC_MAX buffers.
 */
static __noinline int user_data_read(struct user_bytes *to, const struct user_data *d)
{
	__u32 want = d->size < IOVEC_BYTES ? d->size : IOVEC_BYTES, done, i;

	barrier_var(want);
	if (want > IOVEC_BYTES)
		want = IOVEC_BYTES;
	if (!d->is_vector)
		return bpf_probe_read_user(to->data, want, (const void *)d->base) ? -1 : want;
	to->len = 0;
	for (i = 0; i < IOVEC_MAX && i < d->count; i++)
		if (!user_bytes_add(to, d, i))
			return -1;
	done = *(volatile __u32 *)&to->len;
	if (done > IOVEC_BYTES) /* the last buffer is larger than the rest of the space */
		done = IOVEC_BYTES;
	return done < want && d->count > IOVEC_MAX ? -1 : done;
}

#endif
