package stacktrace

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/stack"
)

// ProgramFrames returns the number of frames of the BPF program and its callers.
func ProgramFrames(frames []stack.Frame) int {
	const most = 16
	n := 0
	for i, f := range frames[:min(most, len(frames))] {
		if f.Module == "[bpf]" || runsPrograms(f.Name) {
			n = i + 1
		}
	}
	return n
}

func runsPrograms(function string) bool {
	for _, prefix := range []string{"bpf_prog_", "bpf_trampoline_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_get_stack"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// CheckHead compares struct stack_head of the object with the Go type.
func CheckHead(spec *ebpf.CollectionSpec) error {
	var head *btf.Struct
	if err := spec.Types.TypeByName("stack_head", &head); err != nil {
		return fmt.Errorf("find struct stack_head: %w", err)
	}
	return layout.Check(head, reflect.TypeFor[stackHead]())
}
