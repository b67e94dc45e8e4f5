// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"

#define IFNAMSIZ 16

/* Only interfaces of this name. */
const volatile __u32 targ_name_len = 0;
const volatile char targ_name[IFNAMSIZ] = {};

struct table_key {
	char name[IFNAMSIZ];
	__u32 netns;
	__u32 ifindex;
	__u16 queue;
	__u8 is_tx;
	__u8 pad;
};

/* Packets are counted by size, in bytes. */
struct table_value {
	__u64 packets;
	__u64 bytes;
	__u64 below_64;
	__u64 below_512;
	__u64 below_2k;
	__u64 below_16k;
	__u64 below_64k;
	__u64 larger;
};

#include "table.bpf.h"

static __always_inline bool name_wanted(const char *name)
{
	for (int i = 0; i < IFNAMSIZ; i++) {
		if (i >= targ_name_len)
			return i == 0 || !name[i];
		if (name[i] != targ_name[i])
			return false;
	}
	return true;
}

static __always_inline void count_size(struct table_value *value, __u32 len)
{
	if (len < 64)
		table_add(value, below_64, 1);
	else if (len < 512)
		table_add(value, below_512, 1);
	else if (len < 2048)
		table_add(value, below_2k, 1);
	else if (len < 16384)
		table_add(value, below_16k, 1);
	else if (len < 65536)
		table_add(value, below_64k, 1);
	else
		table_add(value, larger, 1);
}

static __always_inline int handle_packet(const struct sk_buff *skb, const struct net_device *dev,
					 __u16 queue, bool is_tx)
{
	struct table_key key = { .queue = queue, .is_tx = is_tx };
	__u32 len = BPF_CORE_READ(skb, len);
	struct table_value *value;

	BPF_CORE_READ_STR_INTO(&key.name, dev, name);
	if (!name_wanted(key.name))
		return 0;
	key.netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	key.ifindex = BPF_CORE_READ(dev, ifindex);
	value = table_find(&key);
	if (!value)
		return 0;
	table_add(value, packets, 1);
	table_add(value, bytes, len);
	count_size(value, len);
	return 0;
}

/* Drivers record the queue of a received packet plus 1, 0 if they do not record it. */
static __always_inline int handle_receive(const struct sk_buff *skb)
{
	__u16 recorded = BPF_CORE_READ(skb, queue_mapping);

	return handle_packet(skb, BPF_CORE_READ(skb, dev), recorded ? recorded - 1 : 0, false);
}

static __always_inline int handle_transmit(const struct sk_buff *skb, const struct net_device *dev)
{
	return handle_packet(skb, dev, BPF_CORE_READ(skb, queue_mapping), true);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(transmit__btf, const struct sk_buff *skb, const struct net_device *dev)
{
	return NOT_PREEMPTED(handle_transmit(skb, dev));
}

SEC("raw_tp/net_dev_start_xmit")
int BPF_PROG(transmit__raw, const struct sk_buff *skb, const struct net_device *dev)
{
	return NOT_PREEMPTED(handle_transmit(skb, dev));
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(receive__btf, const struct sk_buff *skb)
{
	return NOT_PREEMPTED(handle_receive(skb));
}

SEC("raw_tp/netif_receive_skb")
int BPF_PROG(receive__raw, const struct sk_buff *skb)
{
	return NOT_PREEMPTED(handle_receive(skb));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
