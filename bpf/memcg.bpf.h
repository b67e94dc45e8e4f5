/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef __MEMCG_BPF_H
#define __MEMCG_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define MEMCG_DEPTH_MAX 32
#define ZONES_MAX 8
#define NODES_MAX 64

/* Number of possible NUMA nodes, set by user space. */
const volatile __u32 memory_nodes = 1;

static __always_inline struct mem_cgroup *css_memcg(struct cgroup_subsys_state *css)
{
	return css ? (void *)css - bpf_core_field_offset(struct mem_cgroup, css) : NULL;
}

/* task_memcg returns the memory cgroup of a task, in either cgroup version, or NULL. */
static __always_inline struct mem_cgroup *task_memcg(struct task_struct *task)
{
	struct css_set *cset = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = NULL;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return NULL;
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)cset + bpf_core_field_offset(struct css_set, subsys) +
				      bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id) *
					      sizeof(css));
	return css_memcg(css);
}

/* The ID of its cgroup, 0 without one. */
static __always_inline __u64 memcg_cgroup_id(struct mem_cgroup *memcg)
{
	return memcg ? BPF_CORE_READ(memcg, css.cgroup, kn, id) : 0;
}

static __always_inline __u64 node_free_pages(struct pglist_data *node)
{
	void *zones = (void *)node + bpf_core_field_offset(struct pglist_data, node_zones);
	__s64 free = 0;

	for (__u32 i = 0; i < ZONES_MAX; i++) {
		struct zone *zone = zones + i * bpf_core_type_size(struct zone);

		if (i >= BPF_CORE_READ(node, nr_zones))
			break;
		free += BPF_CORE_READ(zone, vm_stat[0].counter); /* NR_FREE_PAGES */
	}
	return free;
}

/*
 * free_pages returns the number of free pages of the machine, without the changes that CPUs have
 * not added yet, as in /proc/vmstat. The nodes are found through a memory cgroup, because their
 * addresses are no symbols that programs can use.
 */
static __always_inline __u64 free_pages(struct mem_cgroup *memcg)
{
	void *nodes = (void *)memcg + bpf_core_field_offset(struct mem_cgroup, nodeinfo);
	struct mem_cgroup_per_node *node = NULL;
	__u64 free = 0;

	for (__u32 i = 0; i < NODES_MAX; i++) {
		if (i >= memory_nodes || !memcg)
			break;
		bpf_probe_read_kernel(&node, sizeof(node), nodes + i * sizeof(node));
		if (node)
			free += node_free_pages(BPF_CORE_READ(node, lruvec.pgdat));
	}
	return free;
}

#endif
