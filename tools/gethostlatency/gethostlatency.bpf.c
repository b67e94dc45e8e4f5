/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "compat.bpf.h"
#include "event.bpf.h"
#include "task.bpf.h"

#define HOST_MAX 1025 /* NI_MAXHOST */
#define SERVICE_MAX 64
#define ADDRS_MAX 64
#define AF_INET 2
#define AF_INET6 10

/* Only failed calls. */
const volatile bool targ_failed = false;

enum function {
	GETADDRINFO,
	GETHOSTBYNAME,
	GETHOSTBYNAME2,
	GETHOSTBYNAME_R,
	GETHOSTBYNAME2_R,
};

/* Keeps the type in the object: Go takes its constants from there. */
const enum function *function_type __attribute__((unused));

/* A call, and the addresses of its results. */
struct call {
	__u64 start_ns;
	const char *host;
	const char *service;
	void **result;
	__s32 *error;
	__s32 h_errno; /* of the nested call */
	__u32 function;
};

#include "usercall.bpf.h"

struct event {
	struct task_info task;
	__u64 delta_ns;
	__u8 addr[16]; /* IPv4-mapped for IPv4 */
	__s32 ret;
	__s32 h_errno;
	__u16 host_len; /* including the NUL byte; 0 if there is none */
	__u16 service_len;
	__u16 addrs;
	__u8 function;
	__u8 found; /* the call has an answer */
};

struct scratch {
	struct event event;
	char names[HOST_MAX + SERVICE_MAX];
};

#include "scratch.bpf.h"

/* Keeps the type in the BTF of the object, for comparison with the Go type. */
const struct event *event_type __attribute__((unused));

/* struct addrinfo, which is the same in glibc and musl. */
struct addrinfo {
	__s32 flags, family, socktype, protocol;
	__u32 addrlen;
	__u32 pad;
	const void *addr;
	const char *canonname;
	const struct addrinfo *next;
};

struct hostent {
	const char *name;
	const char **aliases;
	__s32 addrtype, length;
	const void *const *addr_list;
};

static __always_inline void set_addr(struct event *e, __s32 family, const void *from)
{
	if (family == AF_INET) {
		e->addr[10] = e->addr[11] = 0xff;
		bpf_probe_read_user(&e->addr[12], 4, from);
	} else if (family == AF_INET6) {
		bpf_probe_read_user(e->addr, sizeof(e->addr), from);
	}
}

/* After family and port, and for IPv6 the flow. */
static __always_inline const void *sockaddr_ip(const void *addr, __s32 family)
{
	return addr + (family == AF_INET ? 4 : 8);
}

/*
 * The list has an entry per socket type that an address can be used with, unless the caller
 * requested one: consecutive entries for the same address count once.
 */
static __always_inline void read_addrinfo(struct event *e, const struct addrinfo *list)
{
	struct addrinfo a = {};
	__u64 last[2] = {}, ip[2];

	for (int i = 0; i < ADDRS_MAX && list; i++) {
		if (bpf_probe_read_user(&a, sizeof(a), list))
			break;
		__builtin_memset(ip, 0, sizeof(ip));
		if (a.family == AF_INET)
			bpf_probe_read_user(ip, 4, sockaddr_ip(a.addr, AF_INET));
		else
			bpf_probe_read_user(ip, 16, sockaddr_ip(a.addr, AF_INET6));
		if (!e->addrs)
			set_addr(e, a.family, sockaddr_ip(a.addr, a.family));
		if (!e->addrs || ip[0] != last[0] || ip[1] != last[1])
			e->addrs++;
		last[0] = ip[0];
		last[1] = ip[1];
		list = a.next;
	}
}

static __always_inline void read_hostent(struct event *e, const struct hostent *entry)
{
	const void *addr = NULL;
	struct hostent h = {};

	if (bpf_probe_read_user(&h, sizeof(h), entry))
		return;
	for (int i = 0; i < ADDRS_MAX; i++) {
		if (bpf_probe_read_user(&addr, sizeof(addr), h.addr_list + i) || !addr)
			break;
		if (!e->addrs)
			set_addr(e, h.addrtype, addr);
		e->addrs++;
	}
}

static __always_inline __s32 read_h_errno(const struct call *c)
{
	__s32 err = c->h_errno;

	if (c->error)
		bpf_probe_read_user(&err, sizeof(err), c->error);
	return err;
}

/* read_result reads the answer. Functions that return the answer have no pointer to a result. */
static __always_inline void read_result(struct event *e, const struct call *c, __u64 ret)
{
	void *result = (void *)ret;

	e->function = c->function;
	if (c->function == GETADDRINFO || c->result) {
		e->ret = ret;
		result = NULL;
		if (!e->ret)
			bpf_probe_read_user(&result, sizeof(result), c->result);
	}
	e->found = result != NULL;
	if (!result) {
		e->h_errno = read_h_errno(c);
		return;
	}
	if (c->function == GETADDRINFO)
		read_addrinfo(e, result);
	else
		read_hostent(e, result);
}

static __always_inline __u32 read_names(struct scratch *s, const struct call *c)
{
	long len = c->host ? read_user_str(s->names, HOST_MAX, c->host) : 0;

	if (len < 0 || len > HOST_MAX)
		len = 0;
	s->event.host_len = len;
	if (!c->service)
		return len;
	/* Read the length again, so that the verifier knows its bound. */
	__u32 host_len = s->event.host_len;

	if (host_len > HOST_MAX)
		return 0;
	len = read_user_str(s->names + host_len, SERVICE_MAX, c->service);
	if (len < 0 || len > SERVICE_MAX)
		len = 0;
	s->event.service_len = len;
	return host_len + len;
}

static __always_inline int enter(struct pt_regs *ctx, const struct call *call)
{
	struct call *c;

	if (!task_current_wanted())
		return 0;
	c = user_call_begin(ctx);
	if (c) {
		*c = *call;
		c->start_ns = bpf_ktime_get_boot_ns();
	}
	return 0;
}

static __always_inline void send(struct pt_regs *ctx, const struct call *call)
{
	struct scratch *s = scratch_begin();
	__u32 size;

	if (!s)
		return;
	task_info_current(&s->event.task);
	s->event.delta_ns = s->event.task.time_ns - call->start_ns;
	read_result(&s->event, call, PT_REGS_RC(ctx));
	size = sizeof(s->event) + read_names(s, call);
	if (size <= sizeof(*s) && (!targ_failed || !s->event.found))
		event_send(ctx, s, size, s->event.task.time_ns);
	scratch_end();
}

/*
 * gethostbyname() calls gethostbyname_r() with static memory: a nested call for the same name is
 * part of the outer one. Only the inner call provides the reason of a failure.
 */
static __always_inline bool is_inner(const struct call *call)
{
	struct calls *all = calls_find(bpf_get_current_pid_tgid());

	if (!all)
		return false;
	for (int i = 0; i < CALL_DEPTH_MAX; i++) {
		if (!all->frame[i] || all->call[i].host != call->host)
			continue;
		all->call[i].h_errno = read_h_errno(call);
		return true;
	}
	return false;
}

SEC("uretprobe/libc:getaddrinfo,gethostbyname,gethostbyname2,gethostbyname_r,gethostbyname2_r")
int lookup__uprobe__return(struct pt_regs *ctx)
{
	struct call call;
	bool nested;

	if (user_call_end(ctx, &call, &nested) && !(nested && is_inner(&call)))
		send(ctx, &call);
	return 0;
}

SEC("uprobe/libc:getaddrinfo")
int BPF_KPROBE(lookup__uprobe__getaddrinfo, const char *host, const char *service, const void *hints,
	       void **result)
{
	struct call call = { .host = host, .service = service, .result = result, .function = GETADDRINFO };

	return enter(ctx, &call);
}

SEC("uprobe/libc:gethostbyname")
int BPF_KPROBE(lookup__uprobe__gethostbyname, const char *host)
{
	struct call call = { .host = host, .function = GETHOSTBYNAME };

	return enter(ctx, &call);
}

SEC("uprobe/libc:gethostbyname2")
int BPF_KPROBE(lookup__uprobe__gethostbyname2, const char *host)
{
	struct call call = { .host = host, .function = GETHOSTBYNAME2 };

	return enter(ctx, &call);
}

#if defined(__TARGET_ARCH_x86)
#define PARM6(ctx) ((ctx)->r9)
static __always_inline void *parm7(struct pt_regs *ctx)
{
	void *val = NULL;

	bpf_probe_read_user(&val, sizeof(val), (void *)PT_REGS_SP(ctx) + 8);
	return val;
}
#else
#define PARM6(ctx) (((struct user_pt_regs *)(ctx))->regs[5])
static __always_inline void *parm7(struct pt_regs *ctx)
{
	return (void *)((struct user_pt_regs *)ctx)->regs[6];
}
#endif

SEC("uprobe/libc:gethostbyname_r")
int BPF_KPROBE(lookup__uprobe__gethostbyname_r, const char *host, void *mem, void *buf, __u64 len,
	       void **result)
{
	struct call call = { .host = host, .result = result, .error = (void *)PARM6(ctx), .function = GETHOSTBYNAME_R };

	return enter(ctx, &call);
}

SEC("uprobe/libc:gethostbyname2_r")
int BPF_KPROBE(lookup__uprobe__gethostbyname2_r, const char *host)
{
	struct call call = {
		.host = host,
		.result = (void *)PARM6(ctx),
		.error = parm7(ctx),
		.function = GETHOSTBYNAME2_R,
	};

	return enter(ctx, &call);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
