// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "observing.bpf.h"
#include "task.bpf.h"

#define BDI_NAME_LEN 64

/* enum wb_reason, whose values differ between kernels. */
enum reason {
	REASON_OTHER,
	REASON_BACKGROUND,
	REASON_VMSCAN,
	REASON_SYNC,
	REASON_PERIODIC,
	REASON_LAPTOP_TIMER,
	REASON_FS_FREE_SPACE,
	REASON_FORKER_THREAD,
	REASON_FOREIGN_FLUSH,
	REASON_DONTCACHE,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum reason *reason_type __attribute__((unused));

struct event {
	struct task_info task; /* the worker thread */
	__u64 latency_ns; /* CLOCK_MONOTONIC */
	__s64 pages;
	__u32 reason; /* enum reason */
	bool waits; /* WB_SYNC_ALL */
	__u8 pad[3];
	char device[BDI_NAME_LEN];
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* A run in progress. Each thread has at most one. */
struct run {
	__u64 begin_ns;
	const struct wb_writeback_work *work;
	long nr_pages; /* to write */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32); /* thread */
	__type(value, struct run);
} runs SEC(".maps");

/* Some values were removed, others added later. */
enum wb_reason___all {
	WB_REASON_BACKGROUND___all,
	WB_REASON_VMSCAN___all,
	WB_REASON_SYNC___all,
	WB_REASON_PERIODIC___all,
	WB_REASON_LAPTOP_TIMER___all,
	WB_REASON_FS_FREE_SPACE___all,
	WB_REASON_FORKER_THREAD___all,
	WB_REASON_FOREIGN_FLUSH___all,
	WB_REASON_DONTCACHE___all,
};

#define RETURN_IF_REASON(value, name)                                                            \
	if (bpf_core_enum_value_exists(enum wb_reason___all, WB_REASON_##name##___all) &&         \
	    (value) == bpf_core_enum_value(enum wb_reason___all, WB_REASON_##name##___all))       \
		return REASON_##name;

static __always_inline enum reason reason_of(__u32 value)
{
	RETURN_IF_REASON(value, BACKGROUND)
	RETURN_IF_REASON(value, VMSCAN)
	RETURN_IF_REASON(value, SYNC)
	RETURN_IF_REASON(value, PERIODIC)
	RETURN_IF_REASON(value, LAPTOP_TIMER)
	RETURN_IF_REASON(value, FS_FREE_SPACE)
	RETURN_IF_REASON(value, FORKER_THREAD)
	RETURN_IF_REASON(value, FOREIGN_FLUSH)
	RETURN_IF_REASON(value, DONTCACHE)
	return REASON_OTHER;
}

static __always_inline int handle_start(const struct wb_writeback_work *work)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct run r = {
		.begin_ns = bpf_ktime_get_ns(),
		.work = work,
		.nr_pages = BPF_CORE_READ(work, nr_pages),
	};

	if (!observing)
		return 0;
	if (bpf_map_lookup_elem(&runs, &tid))
		lost_add(unobserved);
	if (bpf_map_update_elem(&runs, &tid, &r, BPF_ANY))
		lost_add(map_full);
	return 0;
}

static __always_inline int handle_written(void *ctx, const struct bdi_writeback *wb,
					  const struct wb_writeback_work *work)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct run *r = bpf_map_lookup_elem(&runs, &tid);
	struct event e = {};

	if (!r)
		return 0;
	if (r->work == work) {
		task_info_current(&e.task);
		e.latency_ns = bpf_ktime_get_ns() - r->begin_ns;
		e.pages = r->nr_pages - BPF_CORE_READ(work, nr_pages);
		e.reason = reason_of(BPF_CORE_READ(work, reason));
		e.waits = BPF_CORE_READ(work, sync_mode) == WB_SYNC_ALL;
		bpf_probe_read_kernel_str(e.device, sizeof(e.device), BPF_CORE_READ(wb, bdi)->dev_name);
		event_send(ctx, &e, sizeof(e), e.task.time_ns);
	} else {
		lost_add(unobserved);
	}
	bpf_map_delete_elem(&runs, &tid);
	return 0;
}

SEC("tp_btf/writeback_start")
int BPF_PROG(start__btf, struct bdi_writeback *wb, struct wb_writeback_work *work)
{
	return NOT_PREEMPTED(handle_start(work));
}

SEC("raw_tp/writeback_start")
int BPF_PROG(start__raw, struct bdi_writeback *wb, struct wb_writeback_work *work)
{
	return NOT_PREEMPTED(handle_start(work));
}

SEC("tp_btf/writeback_written")
int BPF_PROG(written__btf, struct bdi_writeback *wb, struct wb_writeback_work *work)
{
	return NOT_PREEMPTED(handle_written(ctx, wb, work));
}

SEC("raw_tp/writeback_written")
int BPF_PROG(written__raw, struct bdi_writeback *wb, struct wb_writeback_work *work)
{
	return NOT_PREEMPTED(handle_written(ctx, wb, work));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
