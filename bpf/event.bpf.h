/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __EVENT_BPF_H
#define __EVENT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lost.bpf.h"
#include "map.bpf.h"

/* Set by user space if "events" is a perf event array. */
const volatile bool event_perf_buffer = false;

/* The interval in which user space polls the ring buffer once it is awake. Tools can change it. */
const volatile __u64 event_wakeup_ns = 40000000;

/* User space sets the size, and the type in kernels without ring buffers (before 5.8). */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps") USER_SPACE;

__u64 event_last_wakeup_ns;

/*
 * Waking the reader costs several times as much as an event, so an event wakes it only if the last
 * wake-up is at least event_wakeup_ns ago, or with wake. Until then the reader polls. Two CPUs can
 * wake it at the same time, which is harmless.
 */
static __always_inline long event_to_ring(void *event, __u64 size, __u64 now_ns, bool wake)
{
	long err;

	if (!wake && now_ns - event_last_wakeup_ns < event_wakeup_ns)
		return bpf_ringbuf_output(&events, event, size, BPF_RB_NO_WAKEUP);
	err = bpf_ringbuf_output(&events, event, size, BPF_RB_FORCE_WAKEUP);
	if (!err)
		event_last_wakeup_ns = now_ns;
	return err;
}

/*
 * event_output_wake sends size bytes. now_ns is the time of the event, in the same clock for all
 * events. wake is for events that fill the buffer quickly. The caller handles the error.
 */
static __always_inline long event_output_wake(void *ctx, void *event, __u64 size, __u64 now_ns, bool wake)
{
	if (event_perf_buffer)
		return bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, event, size);
	return event_to_ring(event, size, now_ns, wake);
}

static __always_inline long event_output(void *ctx, void *event, __u64 size, __u64 now_ns)
{
	return event_output_wake(ctx, event, size, now_ns, false);
}

/* event_send sends an event, and counts it as lost if that fails. */
static __always_inline long event_send(void *ctx, void *event, __u64 size, __u64 now_ns)
{
	long err = event_output(ctx, event, size, now_ns);

	if (err)
		lost_add(buffer_full);
	return err;
}

#endif
