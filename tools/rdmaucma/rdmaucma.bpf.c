// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>
#include "event.bpf.h"
#include "task.bpf.h"

#define AF_INET 2
#define AF_INET6 10

/* Types of the modules rdma_cm and rdma_ucm. */
struct rdma_addr {
	struct __kernel_sockaddr_storage src_addr;
	struct __kernel_sockaddr_storage dst_addr;
} __attribute__((preserve_access_index));

struct rdma_route {
	struct rdma_addr addr;
} __attribute__((preserve_access_index));

enum rdma_ucm_port_space {
	RDMA_PS_TCP = 0x0106,
};

struct rdma_cm_id {
	struct rdma_route route;
	enum rdma_ucm_port_space ps;
} __attribute__((preserve_access_index));

enum rdma_cm_event_type {
	RDMA_CM_EVENT_ADDR_RESOLVED,
};

struct rdma_cm_event {
	enum rdma_cm_event_type event;
	int status;
} __attribute__((preserve_access_index));

/* An address as in sockaddr, and whether there is one. */
struct end {
	__u8 addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u16 port;
	__u16 family; /* 4 or 6, 0 for none */
};

struct event {
	struct task_info task;
	__u32 kind; /* enum rdma_cm_event_type */
	__s32 status;
	__u32 port_space;
	struct end local_end;
	struct end remote_end;
	__u32 pad;
};

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

static __always_inline void end_read(struct end *e, const void *storage)
{
	struct sockaddr_in6 in6 = {};
	const struct sockaddr_in *in = (void *)&in6;

	bpf_probe_read_kernel(&in6, sizeof(in6), storage);
	e->port = bpf_ntohs(in6.sin6_port);
	if (in6.sin6_family == AF_INET) {
		e->family = 4;
		e->addr[10] = e->addr[11] = 0xff;
		__builtin_memcpy(&e->addr[12], &in->sin_addr, 4);
	} else if (in6.sin6_family == AF_INET6) {
		e->family = 6;
		__builtin_memcpy(e->addr, &in6.sin6_addr, 16);
	}
}

static __always_inline int handle_event(void *ctx, struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct event e = {};

	if (!task_current_wanted())
		return 0;
	task_info_current(&e.task);
	e.kind = BPF_CORE_READ(event, event);
	e.status = BPF_CORE_READ(event, status);
	e.port_space = BPF_CORE_READ(id, ps);
	end_read(&e.local_end, __builtin_preserve_access_index(&id->route.addr.src_addr));
	end_read(&e.remote_end, __builtin_preserve_access_index(&id->route.addr.dst_addr));
	event_send(ctx, &e, sizeof(e), e.task.time_ns);
	return 0;
}

/*
 * The types are those of modules. A kprobe is relocated with them; a program of fentry only with those
 * of the kernel and of the module of its function.
 */
SEC("kprobe/ucma_event_handler")
int BPF_KPROBE(event__kprobe, struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	return handle_event(ctx, id, event);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
