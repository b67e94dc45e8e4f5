/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __EVENT_BPF_H
#define __EVENT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lost.bpf.h"
#include "map.bpf.h"

/* Set by user space when it has made "events" a perf event array. */
const volatile bool event_perf_buffer = false;

/* User space looks into the ring this often while it is not asleep. */
const volatile __u64 event_wakeup_ns = 40000000;

/* User space sets the size, and the type where there is no ring buffer (< 5.8). */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps") USER_SPACE;

__u64 event_last_wakeup_ns;

/*
 * Waking the reader costs several times what an event does. So an event wakes it
 * only when the last wake-up is a while ago; until then the reader looks again
 * by itself. Two CPUs may both decide to wake: that is harmless.
 */
static __always_inline long event_to_ring(void *event, __u64 size, __u64 now_ns)
{
	long err;

	if (now_ns - event_last_wakeup_ns < event_wakeup_ns)
		return bpf_ringbuf_output(&events, event, size, BPF_RB_NO_WAKEUP);
	err = bpf_ringbuf_output(&events, event, size, BPF_RB_FORCE_WAKEUP);
	if (!err)
		event_last_wakeup_ns = now_ns;
	return err;
}

/*
 * event_output sends size bytes; now_ns is the event's own time, of any one clock. What
 * it means that they could not be sent is the caller's to say.
 */
static __always_inline long event_output(void *ctx, void *event, __u64 size, __u64 now_ns)
{
	if (event_perf_buffer)
		return bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, event, size);
	return event_to_ring(event, size, now_ns);
}

/* event_send sends an event that is lost if it cannot be sent. */
static __always_inline long event_send(void *ctx, void *event, __u64 size, __u64 now_ns)
{
	long err = event_output(ctx, event, size, now_ns);

	if (err)
		lost_add(buffer_full);
	return err;
}

#endif
