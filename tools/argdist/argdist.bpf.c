// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "lost.bpf.h"

/* The fetched data is part of the key, of which there are three copies on the stack. */
#define FETCH_DATA_MAX 96
#include "fetch.bpf.h"
#include "mark.bpf.h"
#include "target.bpf.h"
#include "task.bpf.h"

struct counters {
	__u64 no_value; /* hits whose value could not be read; they are in no histogram */
	__u64 negative; /* hits with a negative value; they are in no histogram */
};

#include "counters.bpf.h"

/* Count into a histogram of one value, instead of counting values. */
const volatile bool dist_hist = false;

struct table_key {
	__u32 target;
	__u32 pad;
	char data[FETCH_DATA_MAX];
};

struct table_value {
	__u64 count;
};

struct hist_key {
	__u32 target;
};

#include "hist.bpf.h"
#include "table.bpf.h"

/* Layout of a number written by fetch(). */
struct number {
	__u64 missing;
	__s64 value;
};

static __always_inline void add_to_hist(const struct table_key *key)
{
	struct hist_key of = { .target = key->target };
	struct number *n = (void *)key->data;

	if (n->missing)
		counter_add(no_value);
	else if (n->value < 0)
		counter_add(negative);
	else
		hist_record(&of, n->value);
}

static __always_inline void add_to_table(const struct table_key *key)
{
	struct table_value *value = table_find(key);

	if (value)
		table_add(value, count, 1);
}

static __always_inline int hit(void *ctx)
{
	struct table_key key = {};

	if (!task_current_wanted() || !fetch_wanted(ctx, key.data))
		return 0;
	key.target = target_id(ctx);
	if (dist_hist)
		add_to_hist(&key);
	else
		add_to_table(&key);
	return 0;
}

TARGET_PROGRAMS(hit(ctx))

char LICENSE[] SEC("license") = "Dual BSD/GPL";
