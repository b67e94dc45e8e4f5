// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "compat.bpf.h"
#include "task.bpf.h"

#define NO_VCPU ~0U

/* Only this vCPU, as the name of its thread states it. */
const volatile bool targ_by_vcpu = false;
const volatile __u32 targ_vcpu = 0;

struct table_key {
	__u64 cgroup_id;
	__u32 pid;
	__u32 tid;
	__u32 reason;
	__u32 code; /* x86: KVM_ISA_VMX or KVM_ISA_SVM; arm64: the exception that ended the run */
	char comm[TASK_COMM_LEN];
};

struct table_value {
	__u64 count;
};

#include "table.bpf.h"

/*
 * The record of kvm:kvm_exit as in its format file. The arguments of the tracepoint do not contain
 * the reason from 5.16 on, and its types are in the BTF of a module.
 */
#if defined(__TARGET_ARCH_x86)
struct exit_record {
	__u64 common;
	__u32 reason;
	__u32 pad;
	__u64 rip;
	__u32 code;
};
#elif defined(__TARGET_ARCH_arm64)
struct exit_record {
	__u64 common;
	__u32 code;
	__u32 reason;
};
#endif

/* Reads the number of a vCPU from a name such as "CPU 12/KVM", which QEMU sets. */
static __always_inline __u32 vcpu_of(const char *comm)
{
	__u32 n = 0;

	if (comm[0] != 'C' || comm[1] != 'P' || comm[2] != 'U' || comm[3] != ' ')
		return NO_VCPU;
	for (int i = 4; i < TASK_COMM_LEN; i++) {
		if (comm[i] == '/')
			return i > 4 ? n : NO_VCPU;
		if (comm[i] < '0' || comm[i] > '9')
			break;
		n = n * 10 + comm[i] - '0';
	}
	return NO_VCPU;
}

static __always_inline int handle_exit(struct exit_record *record)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct table_key key = { .pid = id >> 32, .tid = id };
	struct table_value *value;

	if (!task_current_wanted())
		return 0;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	if (targ_by_vcpu && vcpu_of(key.comm) != targ_vcpu)
		return 0;
	key.cgroup_id = task_current_cgroup_id();
	key.reason = record->reason;
	key.code = record->code;
	value = table_find(&key);
	if (value)
		table_add(value, count, 1);
	return 0;
}

SEC("tp/kvm/kvm_exit")
int exit__tp(struct exit_record *ctx)
{
	return NOT_PREEMPTED(handle_exit(ctx));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
