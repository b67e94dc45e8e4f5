/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __FILTER_BPF_H
#define __FILTER_BPF_H

#include "packet.bpf.h"

#define TERMS_MAX 64

enum term_kind {
	TERM_AND,
	TERM_OR,
	TERM_NOT,
	TERM_ADDR,
	TERM_PORT,
	TERM_PROTOCOL,
	TERM_ETHER,
	TERM_LEN,
	TERM_FLAGS,
};

/* Which end of the packet a term is about. */
#define END_SOURCE 1
#define END_DEST 2
#define END_BOTH 4 /* both ends have to match, instead of one of them */

/*
 * A term of the expression in postfix order. User space compiles it from the text. The terms are
 * constants, so the verifier follows only what the expression needs.
 */
struct term {
	__u64 addr[2];
	__u64 mask[2];
	__u32 kind; /* enum term_kind */
	__u32 ends; /* of TERM_ADDR and TERM_PORT */
	__u32 low; /* of TERM_FLAGS the mask */
	__u32 high; /* of TERM_FLAGS the value */
};

/* Keep the types in the object: Go takes its constants from there. */
const enum term_kind *term_kind_type __attribute__((unused));
const struct term *term_type __attribute__((unused));

const volatile __u32 targ_nr_terms = 0;
const volatile struct term targ_terms[TERMS_MAX] = {};

static __always_inline bool in_range(__u32 n, const volatile struct term *t)
{
	return n >= t->low && n <= t->high;
}

static __always_inline bool in_net(const struct in6_addr *a, const volatile struct term *t)
{
	const __u64 *word = (const __u64 *)a;

	return !((word[0] ^ t->addr[0]) & t->mask[0]) && !((word[1] ^ t->addr[1]) & t->mask[1]);
}

static __always_inline bool ends_match(bool source, bool dest, __u32 ends)
{
	if (ends & END_BOTH)
		return source && dest;
	return (source && ends & END_SOURCE) || (dest && ends & END_DEST);
}

static __always_inline bool term_matches(const struct event *e, const volatile struct term *t)
{
	switch (t->kind) {
	case TERM_ADDR:
		/* Without this, ::/0 would include packets that have no address. */
		return e->read & READ_ADDRS &&
		       ends_match(in_net(&e->saddr, t), in_net(&e->daddr, t), t->ends);
	case TERM_PORT:
		return e->read & READ_PORTS &&
		       ends_match(in_range(e->sport, t), in_range(e->dport, t), t->ends);
	case TERM_PROTOCOL:
		return e->read & READ_ADDRS && e->protocol == t->low && e->ether_type != ETH_P_ARP;
	case TERM_ETHER:
		return e->ether_type == t->low;
	case TERM_LEN:
		return in_range(e->len, t);
	case TERM_FLAGS:
		return e->read & READ_TCP && (e->flags & t->low) == t->high;
	}
	return false;
}

/* The stack of results is a bit each, the top is the lowest bit. */
static __always_inline bool packet_matches(const struct event *e)
{
	__u64 stack = 1;

	for (__u32 i = 0; i < TERMS_MAX; i++) {
		const volatile struct term *t = &targ_terms[i];
		__u64 top = stack & 1, below = stack >> 1 & 1;

		if (i >= targ_nr_terms)
			break;
		if (t->kind == TERM_NOT)
			stack ^= 1;
		else if (t->kind == TERM_AND)
			stack = stack >> 2 << 1 | (top & below);
		else if (t->kind == TERM_OR)
			stack = stack >> 2 << 1 | top | below;
		else
			stack = stack << 1 | term_matches(e, t);
	}
	return stack & 1;
}

#endif
