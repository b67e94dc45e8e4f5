// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "packet.bpf.h"
#include "filter.bpf.h"
#include "owner.bpf.h"

/* The most bytes of a packet to send; 0 for none. */
const volatile __u32 targ_snaplen = 0;
/* A bit for each enum packet_direction. */
const volatile __u32 targ_directions = 0;
/* Only interfaces of this name. */
const volatile __u32 targ_interface_len = 0;
const volatile char targ_interface[IFNAMSIZ] = {};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* Packets on a loopback device that were reported as sent, and are received next. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, const struct sk_buff *);
	__type(value, __u8);
} looped SEC(".maps");

static __always_inline bool interface_wanted(const char *name)
{
	for (int i = 0; i < IFNAMSIZ; i++) {
		if (i >= targ_interface_len)
			return i == 0 || !name[i];
		if (name[i] != targ_interface[i])
			return false;
	}
	return true;
}

static __always_inline bool is_loopback(const struct net_device *dev)
{
	return BPF_CORE_READ(dev, type) == ARPHRD_LOOPBACK;
}

/* Sends the event with the data of the packet, also of its pages, which only this helper can read. */
static __always_inline long packet_send(struct sk_buff *skb, struct event *e)
{
	__u64 len = e->len + e->skip - e->mac_len - (e->vlan_proto ? 4 : 0);
	__u64 most = targ_snaplen + e->skip;
	long err;

	if (!event_perf_buffer)
		return event_send(skb, e, sizeof(*e), e->task.time_ns);
	if (len > most)
		len = most;
	err = bpf_skb_output(skb, &events, BPF_F_CURRENT_CPU | len << 32, e, sizeof(*e));
	if (err)
		lost_add(buffer_full);
	return err;
}

/* For one packet in each direction. */
struct scratch {
	__u32 busy;
	__u32 pad;
	struct event event;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3); /* by direction */
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/*
 * Returns 1 if the packet was reported. What is sent is noted even if it is not reported, because
 * its answer is looked up by that.
 */
static __always_inline int report(struct sk_buff *skb, const struct net_device *dev, struct event *e)
{
	bool sent = e->direction == PACKET_OUT;
	bool wanted = targ_directions & 1 << e->direction;
	const struct owner *o;
	struct headers h = {};

	BPF_CORE_READ_STR_INTO(&e->name, dev, name);
	if (!interface_wanted(e->name))
		wanted = false;
	if (!wanted && !sent)
		return 0;
	packet_read(e, &h, skb, dev);
	o = sent ? sender_of(e, &h, skb) : receiver_of(e, &h, skb);
	if (!wanted)
		return 0;
	if (!o && sent && targ_directions & 1 << PACKET_IN && is_loopback(dev))
		return 0;
	if (o)
		e->task = o->task;
	else
		e->task.uid = NO_UID;
	if (task_filter && (!o || !o->wanted))
		return 0;
	if (!packet_matches(e)) {
		if (targ_nr_terms && e->read & UNREADABLE)
			lost_add(condition_unread);
		return 0;
	}
	e->task.time_ns = bpf_ktime_get_boot_ns();
	packet_send(skb, e);
	return 1;
}

/* A packet that a driver sends in a hardware interrupt, for the log, can interrupt the program. */
static __always_inline int handle_packet(struct sk_buff *skb, const struct net_device *dev,
					 enum packet_direction direction)
{
	__u32 key = direction;
	struct scratch *s;
	int reported;

	s = bpf_map_lookup_elem(&scratches, &key);
	if (!s || s->busy) {
		lost_add(program_busy);
		return 0;
	}
	s->busy = 1;
	barrier();
	__builtin_memset(&s->event, 0, sizeof(s->event));
	s->event.direction = direction;
	reported = report(skb, dev, &s->event);
	barrier();
	s->busy = 0;
	return reported;
}

/*
 * A packet on a loopback device is shown once: as sent, or if it is not shown as that, because its
 * sender is unknown or not wanted, as received.
 */
static __always_inline int handle_transmit(struct sk_buff *skb, const struct net_device *dev)
{
	const struct sk_buff *key = skb;
	__u8 one = 1;

	barrier_var(key);
	if (!handle_packet(skb, dev, PACKET_OUT)) {
		if (is_loopback(dev))
			bpf_map_delete_elem(&looped, &key);
	} else if (is_loopback(dev)) {
		bpf_map_update_elem(&looped, &key, &one, BPF_ANY);
	}
	return 0;
}

/*
 * The verifier of 6.12 considers a pointer on the stack to be a number once a helper was called with
 * its address, so the key of the map is a copy of skb that the compiler does not use in its place.
 */
static __always_inline int handle_receive(struct sk_buff *skb)
{
	const struct net_device *dev = BPF_CORE_READ(skb, dev);
	const struct sk_buff *key = skb;

	barrier_var(key);
	if (!dev)
		return 0;
	if (is_loopback(dev) && !bpf_map_delete_elem(&looped, &key))
		return 0;
	handle_packet(skb, dev, PACKET_IN);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(transmit__btf, struct sk_buff *skb, const struct net_device *dev)
{
	return NOT_PREEMPTED(handle_transmit(skb, dev));
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(receive__btf, struct sk_buff *skb)
{
	return NOT_PREEMPTED(handle_receive(skb));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
