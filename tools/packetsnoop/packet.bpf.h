/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __PACKET_BPF_H
#define __PACKET_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "sock.bpf.h"
#include "task.bpf.h"

#define IFNAMSIZ 16
#define ETH_HLEN 14
#define ETH_P_IP 0x0800
#define ETH_P_ARP 0x0806
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021AD 0x88a8
#define ARPHRD_ETHER 1
#define ARPHRD_LOOPBACK 772
#define IP_OFFSET 0x1fff /* fragments other than the first have no transport header */
#define IP6_OFFSET 0xfff8
#define IPV6_HEADERS_MAX 6
#define IPPROTO_HOPOPTS 0 /* include/uapi/linux/in6.h */
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60
#define VLAN_TAGS_MAX 2
#define TCP_FLAG_SYN 2
#define TCP_FLAG_ACK 16
#define ICMP_ECHOREPLY 0
#define ICMP_ECHO 8
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

/* Numbers of pcapng: LINKTYPE_* and the direction in the flags of a packet. */
enum link_type {
	LINK_ETHERNET = 1,
	LINK_RAW = 101,
};

enum packet_direction {
	PACKET_IN = 1,
	PACKET_OUT = 2,
};

/* Keep the types in the object: Go takes its constants from there. */
const enum link_type *link_type_type __attribute__((unused));
const enum packet_direction *packet_direction_type __attribute__((unused));

/* Which headers were read. */
#define READ_ADDRS 1 /* of IP or ARP */
#define READ_PORTS 2
#define READ_TCP 4
#define READ_ICMP 8
#define UNREADABLE 16 /* a header is not in the linear part of the packet */

struct event {
	struct task_info task; /* the owner of the socket; its time is that of the packet */
	struct in6_addr saddr;
	struct in6_addr daddr;
	__u32 netns;
	__u32 ifindex;
	char name[IFNAMSIZ];
	__u32 len; /* from the start of the packet as written */
	__u32 skip; /* data before that start */
	__u32 gso_size;
	__u32 seq;
	__u32 ack;
	__u16 sport;
	__u16 dport;
	__u16 ether_type;
	__u16 vlan_proto; /* of the tag beside the packet, 0 without one */
	__u16 vlan_tci;
	__u8 link; /* enum link_type */
	__u8 direction;
	__u8 protocol;
	__u8 read;
	__u8 flags; /* of the TCP header */
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 mac_len; /* bytes of mac, which precede the data */
	__u8 mac[ETH_HLEN];
	__u8 pad[4];
};

/* The parts of the linear data: the IP header is at "at". */
struct headers {
	const void *at;
	const void *end;
	__u16 echo_id; /* of an ICMP echo request or reply */
};

/* Until 6.1 (354259fa73e2) a bit tells whether there is a VLAN tag beside the packet. */
struct sk_buff___bit {
	__u8 vlan_present : 1;
} __attribute__((preserve_access_index));

static __always_inline bool skb_has_vlan(const struct sk_buff *skb)
{
	const struct sk_buff___bit *old = (const void *)skb;

	if (bpf_core_field_exists(old->vlan_present))
		return BPF_CORE_READ_BITFIELD_PROBED(old, vlan_present);
	return BPF_CORE_READ(skb, vlan_proto) || BPF_CORE_READ(skb, vlan_tci);
}

static __always_inline bool read_header(void *to, __u32 size, const void *at, const struct headers *h)
{
	return at + size <= h->end && !bpf_probe_read_kernel(to, size, at);
}

#define READ_HEADER(to, h) read_header(&(to), sizeof(to), (h)->at, h)

static __always_inline void read_transport(struct event *e, struct headers *h)
{
	struct {
		__be16 source, dest;
		__be32 seq, ack;
		__u8 offset, flags;
	} __attribute__((packed)) tcp = {};
	struct {
		__u8 type, code;
		__be16 checksum, id;
	} icmp = {};

	switch (e->protocol) {
	case IPPROTO_TCP:
		if (!READ_HEADER(tcp, h))
			goto unreadable;
		e->seq = bpf_ntohl(tcp.seq);
		e->ack = bpf_ntohl(tcp.ack);
		e->flags = tcp.flags;
		e->read |= READ_TCP;
		break;
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
	case IPPROTO_UDPLITE:
		if (!read_header(&tcp, 4, h->at, h))
			goto unreadable;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (!READ_HEADER(icmp, h))
			goto unreadable;
		e->icmp_type = icmp.type;
		e->icmp_code = icmp.code;
		e->read |= READ_ICMP;
		h->echo_id = bpf_ntohs(icmp.id);
		return;
	default:
		return;
	}
	e->sport = bpf_ntohs(tcp.source);
	e->dport = bpf_ntohs(tcp.dest);
	e->read |= READ_PORTS;
	return;
unreadable:
	e->read |= UNREADABLE;
}

static __always_inline void read_ipv4(struct event *e, struct headers *h)
{
	struct iphdr ip = {};

	if (!READ_HEADER(ip, h)) {
		e->read |= UNREADABLE;
		return;
	}
	addr_set_ipv4(&e->saddr, ip.saddr);
	addr_set_ipv4(&e->daddr, ip.daddr);
	e->protocol = ip.protocol;
	e->read |= READ_ADDRS;
	h->at += ip.ihl * 4;
	if (!(ip.frag_off & bpf_htons(IP_OFFSET)))
		read_transport(e, h);
}

/* Skips the headers between IPv6 and the transport protocol. */
static __always_inline void read_ipv6(struct event *e, struct headers *h)
{
	struct {
		__u8 next, len;
		__be16 offset;
	} ext = {};
	struct ipv6hdr ip = {};

	if (!READ_HEADER(ip, h)) {
		e->read |= UNREADABLE;
		return;
	}
	e->saddr = ip.saddr;
	e->daddr = ip.daddr;
	e->protocol = ip.nexthdr;
	e->read |= READ_ADDRS;
	h->at += sizeof(ip);
	for (int i = 0; i < IPV6_HEADERS_MAX; i++) {
		bool fragment = e->protocol == IPPROTO_FRAGMENT;

		if (e->protocol != IPPROTO_HOPOPTS && e->protocol != IPPROTO_ROUTING &&
		    e->protocol != IPPROTO_DSTOPTS && e->protocol != IPPROTO_AH && !fragment)
			break;
		if (!READ_HEADER(ext, h)) {
			e->read |= UNREADABLE;
			return;
		}
		h->at += fragment ? 8 : e->protocol == IPPROTO_AH ? (ext.len + 2) * 4 :
								    (ext.len + 1) * 8;
		e->protocol = ext.next;
		if (fragment && ext.offset & bpf_htons(IP6_OFFSET))
			return;
	}
	read_transport(e, h);
}

static __always_inline void read_arp(struct event *e, struct headers *h)
{
	struct {
		__be16 hardware, protocol;
		__u8 hardware_len, protocol_len;
		__be16 operation;
		__u8 from_mac[6];
		__u8 from[4];
		__u8 to_mac[6];
		__u8 to[4];
	} arp = {};
	__be32 addr;

	if (!READ_HEADER(arp, h)) {
		e->read |= UNREADABLE;
		return;
	}
	if (arp.protocol != bpf_htons(ETH_P_IP) || arp.hardware_len != 6 || arp.protocol_len != 4)
		return;
	__builtin_memcpy(&addr, arp.from, sizeof(addr));
	addr_set_ipv4(&e->saddr, addr);
	__builtin_memcpy(&addr, arp.to, sizeof(addr));
	addr_set_ipv4(&e->daddr, addr);
	e->read |= READ_ADDRS;
}

/*
 * Finds the start of the packet. Data begins at the Ethernet header of a sent packet, and after it in
 * a received one. Packets of devices without an Ethernet header start at the network header.
 */
static __always_inline void find_start(struct event *e, struct headers *h, const struct sk_buff *skb,
				       const struct net_device *dev)
{
	const void *head = BPF_CORE_READ(skb, head), *data = BPF_CORE_READ(skb, data);
	__u16 type = BPF_CORE_READ(dev, type);
	const void *mac;

	h->at = data;
	h->end = head + BPF_CORE_READ(skb, tail);
	e->link = LINK_RAW;
	e->ether_type = bpf_ntohs(BPF_CORE_READ(skb, protocol));
	e->len = BPF_CORE_READ(skb, len);
	if (type != ARPHRD_ETHER && type != ARPHRD_LOOPBACK) {
		__u32 before = head + BPF_CORE_READ(skb, network_header) - data;

		if (e->direction == PACKET_OUT && before < e->len) {
			h->at += before;
			e->skip = before;
			e->len -= before;
		}
		return;
	}
	mac = e->direction == PACKET_OUT ? data : head + BPF_CORE_READ(skb, mac_header);
	if (e->direction == PACKET_IN && data - mac != ETH_HLEN)
		return;
	if (mac + ETH_HLEN > h->end || bpf_probe_read_kernel(e->mac, ETH_HLEN, mac))
		return;
	e->link = LINK_ETHERNET;
	e->ether_type = e->mac[12] << 8 | e->mac[13];
	h->at = mac + ETH_HLEN;
	if (e->direction == PACKET_IN) {
		e->mac_len = ETH_HLEN;
		e->len += ETH_HLEN;
	}
}

/* The tag beside the packet is the outer one. User space writes it into the packet, as on the wire. */
static __always_inline void read_vlan(struct event *e, struct headers *h, const struct sk_buff *skb)
{
	if (e->link == LINK_ETHERNET && skb_has_vlan(skb)) {
		e->vlan_proto = bpf_ntohs(BPF_CORE_READ(skb, vlan_proto));
		e->vlan_tci = BPF_CORE_READ(skb, vlan_tci);
		e->len += 4;
	}
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		__be16 tag[2] = {};

		if (e->ether_type != ETH_P_8021Q && e->ether_type != ETH_P_8021AD)
			break;
		if (!READ_HEADER(tag, h)) {
			e->read |= UNREADABLE;
			break;
		}
		e->ether_type = bpf_ntohs(tag[1]);
		h->at += sizeof(tag);
	}
}

static __always_inline void packet_read(struct event *e, struct headers *h, const struct sk_buff *skb,
					const struct net_device *dev)
{
	const void *shared = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end);

	find_start(e, h, skb, dev);
	read_vlan(e, h, skb);
	e->netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	e->ifindex = BPF_CORE_READ(dev, ifindex);
	e->gso_size = BPF_CORE_READ((const struct skb_shared_info *)shared, gso_size);
	if (e->ether_type == ETH_P_IP)
		read_ipv4(e, h);
	else if (e->ether_type == ETH_P_IPV6)
		read_ipv6(e, h);
	else if (e->ether_type == ETH_P_ARP)
		read_arp(e, h);
}

#endif
