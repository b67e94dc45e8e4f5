/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Mappings by their end: an entry is valid only if the mapping still ends there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct held_key);
	__type(value, __u64); /* start of the mapping */
} mapping_ends SEC(".maps");

static __always_inline bool is_mapping(__u32 function)
{
	return function == MMAP || function == MREMAP;
}

static __always_inline void mapping_note(const struct held_key *begin, __u64 bytes)
{
	struct held_key end = *begin;

	end.id += bytes;
	if (bpf_map_update_elem(&mapping_ends, &end, &begin->id, BPF_ANY))
		lost_add(map_full);
}

static __always_inline void mapping_forget(const struct held_key *begin, __u64 bytes)
{
	struct held_key end = *begin;

	end.id += bytes;
	bpf_map_delete_elem(&mapping_ends, &end);
}

/* Returns the mapping that ends there, NULL if unknown; its key is stored in begin. */
static __always_inline struct held_value *mapping_before(struct held_key end, struct held_key *begin)
{
	__u64 *address = bpf_map_lookup_elem(&mapping_ends, &end);
	struct held_value *value;

	*begin = end;
	begin->id = address ? *address : 0;
	value = address ? bpf_map_lookup_elem(&held, begin) : NULL;
	return value && begin->id + value->bytes == end.id ? value : NULL;
}

static __always_inline void unmap_begin(struct pt_regs *ctx, struct held_key *key, __u64 bytes,
					struct held_value *value)
{
	if (targ_trace)
		trace(ctx, key->id, bytes < value->bytes ? bytes : value->bytes, MUNMAP);
	mapping_forget(key, value->bytes);
	if (bytes >= value->bytes)
		return;
	key->id += bytes;
	value->bytes -= bytes;
	held_put(key, value);
	mapping_note(key, value->bytes);
}

static __always_inline void unmap_end(struct pt_regs *ctx, const struct held_key *key, __u64 bytes)
{
	struct held_key begin, end = *key;
	struct held_value *value;

	end.id += bytes;
	value = mapping_before(end, &begin);
	if (!value || begin.id >= key->id)
		return;
	if (targ_trace)
		trace(ctx, key->id, bytes, MUNMAP);
	mapping_forget(&begin, value->bytes);
	value->bytes -= bytes;
	mapping_note(&begin, value->bytes);
}
