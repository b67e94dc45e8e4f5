package value

import "fmt"

// progTypes are the names of enum bpf_prog_type, as of 7.2.
var progTypes = []string{
	"unspec", "socket_filter", "kprobe", "sched_cls", "sched_act", "tracepoint", "xdp", "perf_event",
	"cgroup_skb", "cgroup_sock", "lwt_in", "lwt_out", "lwt_xmit", "sock_ops", "sk_skb", "cgroup_device",
	"sk_msg", "raw_tracepoint", "cgroup_sock_addr", "lwt_seg6local", "lirc_mode2", "sk_reuseport",
	"flow_dissector", "cgroup_sysctl", "raw_tracepoint_writable", "cgroup_sockopt", "tracing", "struct_ops",
	"ext", "lsm", "sk_lookup", "syscall", "netfilter",
}

// mapTypes are the names of enum bpf_map_type.
var mapTypes = []string{
	"unspec", "hash", "array", "prog_array", "perf_event_array", "percpu_hash", "percpu_array", "stack_trace",
	"cgroup_array", "lru_hash", "lru_percpu_hash", "lpm_trie", "array_of_maps", "hash_of_maps", "devmap",
	"sockmap", "cpumap", "xskmap", "sockhash", "cgroup_storage_deprecated", "reuseport_sockarray",
	"percpu_cgroup_storage_deprecated", "queue", "stack", "sk_storage", "devmap_hash", "struct_ops", "ringbuf",
	"inode_storage", "task_storage", "bloom_filter", "user_ringbuf", "cgrp_storage", "arena", "insn_array",
	"rhash",
}

// linkTypes are the names of enum bpf_link_type.
var linkTypes = []string{
	"unspec", "raw_tracepoint", "tracing", "cgroup", "iter", "netns", "xdp", "perf_event", "kprobe_multi",
	"struct_ops", "netfilter", "tcx", "uprobe_multi", "netkit", "sockmap", "tracing_multi",
}

// ProgramType returns the name of an enum bpf_prog_type without its prefix, in lower case,
// or its number if the type is unknown.
func ProgramType(n uint32) string { return nameOr(progTypes, n) }

// MapType returns the name of an enum bpf_map_type, like [ProgramType].
func MapType(n uint32) string { return nameOr(mapTypes, n) }

// LinkType returns the name of an enum bpf_link_type, like [ProgramType].
func LinkType(n uint32) string { return nameOr(linkTypes, n) }

func nameOr(names []string, n uint32) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprint(n)
}
