/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * The current or last allocator call of a thread. Allocator functions call each other, such as
 * calloc malloc and malloc mmap: a nested call is part of the outer one.
 */
struct call {
	__u64 frame;
	__u64 caller; /* return address */
	__u64 bytes;
	__u64 result; /* where posix_memalign stores its result */
	__u64 old; /* argument of realloc and mremap, with its entry */
	struct held_value old_value;
	__u32 function;
	bool returned;
	bool old_held;
	__u8 pad[2];
	__u64 freed; /* last freed memory since the call */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* thread */
	__type(value, struct call);
} calls SEC(".maps");

static __always_inline struct call *last_call(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&calls, &tid);
}

/*
 * An exception can leave operator new: then its return address is overwritten soon. In a thread with
 * uretprobes, these may have overwritten it.
 */
static __always_inline bool was_left(const struct call *call)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct *task = task_current();
	__u64 caller = call->caller;

	if (call->function != NEW_OPERATOR || !bpf_core_field_exists(task->utask))
		return false;
	bpf_probe_read_user(&caller, sizeof(caller), (void *)call->frame - sizeof(caller));
	return caller != call->caller && !BPF_CORE_READ(task, utask, return_instances);
#else
	return false;
#endif
}

/*
 * A call is nested in another one that has not returned if its frame is deeper. With the same frame
 * it replaced the other one by a jump (tail call), unless it is a call of the same function: then
 * the return of the other one was missed.
 */
static __always_inline bool is_within(const struct call *outer, const struct call *call)
{
	if (!outer || outer->returned || was_left(outer))
		return false;
	return outer->frame > call->frame ||
	       (outer->frame == call->frame && outer->function != call->function);
}

static __always_inline int enter(struct pt_regs *ctx, enum function function, __u64 bytes, __u64 old,
				 __u64 result)
{
	struct call call = {
		.frame = frame_at_begin(ctx),
		.caller = caller_address(ctx),
		.bytes = bytes,
		.function = function,
		.old = old,
		.result = result,
	};
	__u32 tid = bpf_get_current_pid_tgid();
	struct held_key key;

	if (!task_current_wanted() || is_within(last_call(), &call))
		return 0;
	if (old) {
		/* During the call another thread can be given that memory. */
		key = held_by_current(old);
		call.old_held = held_take(&key, &call.old_value);
		if (call.old_held && is_mapping(function))
			mapping_forget(&key, call.old_value.bytes);
	}
	if (bpf_map_update_elem(&calls, &tid, &call, BPF_ANY))
		lost_add(map_full);
	return 0;
}

/* The memory allocated by the call, 0 if it failed. */
static __always_inline __u64 allocated(const struct call *call, __u64 ret)
{
	const __u64 max_errno = 4095;
	__u64 address = 0;

	if (call->function == POSIX_MEMALIGN) {
		if (!(__u32)ret)
			bpf_probe_read_user(&address, sizeof(address), (void *)call->result);
		return address;
	}
	if (is_mapping(call->function) && ret >= -max_errno)
		return 0;
	return ret;
}

/* The old memory remains allocated if the call fails; a call for 0 bytes frees it. */
static __always_inline void settle_old(struct pt_regs *ctx, const struct call *call, bool failed)
{
	struct held_key key = held_by_current(call->old);

	if (failed && call->bytes) {
		if (call->old_held)
			held_put(&key, &call->old_value);
		if (call->old_held && is_mapping(call->function))
			mapping_note(&key, call->old_value.bytes);
		return;
	}
	if (!call->old_held)
		counter_add(unseen_frees);
	else if (targ_trace)
		trace(ctx, call->old, call->old_value.bytes, call->function == MREMAP ? MUNMAP : FREE);
}

static __always_inline int leave(struct pt_regs *ctx)
{
	__u64 form = return_form(), frame = frame_at_return(ctx, form), address;
	struct call *call = last_call();
	struct held_key key;

	if (!task_current_wanted())
		return 0;
	if (!call || frame > call->frame || (frame < call->frame && call->returned)) {
		if (form != RETURN_AT_SHARED)
			counter_add(unseen_calls);
		return 0;
	}
	if (frame != call->frame || call->returned || !return_matches(ctx, form, call->caller))
		return 0;
	call->returned = true;
	address = allocated(call, PT_REGS_RC(ctx));
	if (call->old)
		settle_old(ctx, call, !address);
	if (address) {
		key = held_by_current(address);
		if (hold(ctx, &key, call->bytes, call->function, 0) && is_mapping(call->function))
			mapping_note(&key, call->bytes);
	}
	return 0;
}

/*
 * operator new and operator delete by their mangled names, for a size_t of 64 bits. C++ allocators
 * define them in addition to malloc() and free(), and do not call these.
 */
#define NEW "_Znwm,_Znam,_ZnwmRKSt9nothrow_t,_ZnamRKSt9nothrow_t"
#define NEW_ALIGNED                                                          \
	"_ZnwmSt11align_val_t,_ZnamSt11align_val_t,"                         \
	"_ZnwmSt11align_val_tRKSt9nothrow_t,_ZnamSt11align_val_tRKSt9nothrow_t"
#define DELETE "_ZdlPv,_ZdaPv,_ZdlPvm,_ZdaPvm,_ZdlPvRKSt9nothrow_t,_ZdaPvRKSt9nothrow_t"
#define DELETE_ALIGNED                                                       \
	"_ZdlPvSt11align_val_t,_ZdaPvSt11align_val_t,"                       \
	"_ZdlPvmSt11align_val_t,_ZdaPvmSt11align_val_t,"                     \
	"_ZdlPvSt11align_val_tRKSt9nothrow_t,_ZdaPvSt11align_val_tRKSt9nothrow_t"

SEC("uretprobe/libc:malloc,calloc,realloc,reallocarray,posix_memalign,aligned_alloc,memalign,valloc,"
    "pvalloc,mmap,mmap64,mremap," NEW "," NEW_ALIGNED)
int user__uprobe__return(struct pt_regs *ctx)
{
	return leave(ctx);
}

#define ENTER(name, functions, function, bytes, old, result)        \
	SEC("uprobe/libc:" functions)                               \
	int user__uprobe__##name(struct pt_regs *ctx)               \
	{                                                           \
		return enter(ctx, function, bytes, old, result);    \
	}

#define ARG1 PT_REGS_PARM1(ctx)
#define ARG2 PT_REGS_PARM2(ctx)
#define ARG3 PT_REGS_PARM3(ctx)

ENTER(malloc, "malloc", MALLOC, ARG1, 0, 0)
ENTER(calloc, "calloc", CALLOC, ARG1 *ARG2, 0, 0)
ENTER(realloc, "realloc", REALLOC, ARG2, ARG1, 0)
ENTER(reallocarray, "reallocarray", REALLOCARRAY, ARG2 *ARG3, ARG1, 0)
ENTER(posix_memalign, "posix_memalign", POSIX_MEMALIGN, ARG3, 0, ARG1)
ENTER(aligned_alloc, "aligned_alloc", ALIGNED_ALLOC, ARG2, 0, 0)
ENTER(memalign, "memalign", MEMALIGN, ARG2, 0, 0)
ENTER(valloc, "valloc", VALLOC, ARG1, 0, 0)
ENTER(pvalloc, "pvalloc", PVALLOC, ARG1, 0, 0)
ENTER(mmap, "mmap,mmap64", MMAP, ARG2, 0, 0)
ENTER(mremap, "mremap", MREMAP, ARG3, ARG1, 0)
ENTER(new, NEW "," NEW_ALIGNED, NEW_OPERATOR, ARG1, 0, 0)

/* note_freed stores what the thread has freed, until it allocates or frees again. */
static __always_inline void note_freed(struct call *call, __u64 id)
{
	struct call none = { .returned = true, .freed = id };
	__u32 tid = bpf_get_current_pid_tgid();

	if (call)
		call->freed = id;
	else if (bpf_map_update_elem(&calls, &tid, &none, BPF_ANY))
		lost_add(map_full);
}

/*
 * One program for all names, because several can be names of one function. realloc can free its
 * argument, whose entry was removed at its start. operator delete can call free(), or jump to it:
 * memory without an entry that the same thread freed last is this case.
 */
SEC("uprobe/libc:free,cfree," DELETE "," DELETE_ALIGNED)
int user__uprobe__free(struct pt_regs *ctx)
{
	struct held_key key = held_by_current(ARG1);
	struct call *call = last_call();
	struct held_value value;

	if (!key.id || !task_current_wanted())
		return 0;
	if (call && !call->returned && call->old == key.id)
		return 0;
	if (held_take(&key, &value)) {
		if (targ_trace)
			trace(ctx, key.id, value.bytes, FREE);
	} else if (!call || call->freed != key.id) {
		counter_add(unseen_frees);
	}
	note_freed(call, key.id);
	return 0;
}

/* If the start or the end of a mapping is unmapped, the rest remains. */
SEC("uprobe/libc:munmap")
int user__uprobe__munmap(struct pt_regs *ctx)
{
	struct held_key key = held_by_current(ARG1);
	struct held_value value;
	__u64 bytes = ARG2;

	if (!task_current_wanted())
		return 0;
	if (held_take(&key, &value))
		unmap_begin(ctx, &key, bytes, &value);
	else
		unmap_end(ctx, &key, bytes);
	return 0;
}

/* A later thread with the same ID starts without a call. */
static __always_inline int forget(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (last_call())
		bpf_map_delete_elem(&calls, &tid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int ended__btf(void *ctx)
{
	return forget();
}

SEC("raw_tp/sched_process_exit")
int ended__raw(void *ctx)
{
	return forget();
}

SEC("tp/sched/sched_process_exit")
int ended__tp(void *ctx)
{
	return forget();
}
