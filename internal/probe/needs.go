package probe

import (
	"slices"
	"strings"
)

// Needs describes what the kernel must provide for the programs of the variant, as a part of a
// sentence, or "" if nothing is known about it.
func (v Variant) Needs() string {
	var all []string
	for _, section := range v.Where {
		if need := Needs(section); need != "" && !slices.Contains(all, need) {
			all = append(all, need)
		}
	}
	return strings.Join(all, "; ")
}

// Needs describes what the kernel must provide for a program in a section such as
// "tp_btf/sys_exit", as a part of a sentence, or "" if nothing is known about it.
func Needs(section string) string {
	kind, target, _ := strings.Cut(section, "/")
	if target == "ucma_event_handler" {
		return "the module rdma_ucm to be loaded (CONFIG_INFINIBAND_USER_ACCESS), its BTF (5.11), and CONFIG_KPROBES"
	}
	switch strings.TrimSuffix(kind, ".s") {
	case "fentry", "fexit", "fmod_ret":
		// arm64 has BPF trampolines since Linux 6.0, but the direct calls that attach them to
		// functions only since 6.4 (2aa6ac03516d).
		if target == "update_socket_protocol" {
			return "CONFIG_MPTCP (6.6), the kernel's own BTF and BPF trampolines (on arm64 6.4)"
		}
		return "the kernel's own BTF, BPF trampolines (5.5; on arm64 6.4), and that the function is not inlined"
	case "tp_btf":
		return "the kernel's own BTF with the tracepoint (5.5)" + optionOf(target)
	case "raw_tp", "raw_tracepoint":
		return "the tracepoint (4.17)" + optionOf(target)
	case "tp", "tracepoint":
		return "the tracepoint, and a tracefs that is mounted and readable"
	case "kprobe", "kretprobe", "ksyscall", "kretsyscall":
		return "CONFIG_KPROBES, and that the function is not inlined"
	case "kprobe.multi", "kretprobe.multi":
		return "CONFIG_FPROBE (5.18)"
	case "uprobe", "uretprobe":
		return "CONFIG_UPROBES and the symbol in the file"
	case "usdt":
		return "CONFIG_UPROBES and the probe in the file"
	case "iter":
		return "the kernel's own BTF with the iterator (" + iteratorSince(target) + ")"
	case "perf_event":
		return "perf events (CONFIG_PERF_EVENTS)"
	}
	return ""
}

// iteratorSince returns the first kernel version that has an iterator.
func iteratorSince(target string) string {
	switch target {
	case "tcp", "udp", "bpf_map_elem":
		return "5.9"
	case "task_vma":
		return "5.12"
	case "unix":
		return "5.15"
	case "bpf_link":
		return "5.19"
	}
	return "5.8"
}

// optionOf returns the kernel option that a tracepoint needs, if many kernels are built without it.
func optionOf(tracepoint string) string {
	switch tracepoint {
	case "irq_disable", "irq_enable", "preempt_disable", "preempt_enable":
		return ", which needs CONFIG_PREEMPTIRQ_TRACEPOINTS"
	case "hcall_entry", "hcall_exit":
		return ", which only PowerPC has, with CONFIG_PPC_PSERIES"
	}
	return ""
}
