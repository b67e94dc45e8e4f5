package probe

import (
	"slices"
	"strings"
)

// Needs says what a kernel must have for all programs of the variant: a part of a
// sentence, or "" for what is not known.
func (v Variant) Needs() string {
	var all []string
	for _, section := range v.Where {
		if need := Needs(section); need != "" && !slices.Contains(all, need) {
			all = append(all, need)
		}
	}
	return strings.Join(all, "; ")
}

// Needs says what a kernel must have for a program of the section, as
// "tp_btf/sys_exit": a part of a sentence, or "" for what is not known.
func Needs(section string) string {
	kind, target, _ := strings.Cut(section, "/")
	switch strings.TrimSuffix(kind, ".s") {
	case "fentry", "fexit", "fmod_ret":
		// arm64 has trampolines from 6.0 on, but the direct calls that attach them to
		// a function only since 2aa6ac03516d.
		return "the kernel's own BTF, BPF trampolines (5.5; on arm64 6.4) and the function not inlined"
	case "tp_btf":
		return "the kernel's own BTF with the tracepoint (5.5)"
	case "raw_tp", "raw_tracepoint":
		return "the tracepoint (4.17)"
	case "tp", "tracepoint":
		return "the tracepoint and a tracefs that is mounted and may be read"
	case "kprobe", "kretprobe", "ksyscall", "kretsyscall":
		return "CONFIG_KPROBES and the function not inlined"
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

// iteratorSince is the first kernel with an iterator.
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
