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

// ProgramFrames returns the number of innermost frames that belong to the BPF program and to the
// kernel functions that run it.
func ProgramFrames(frames []stack.Frame) int {
	const maxFrames = 16
	n := 0
	for i, f := range frames[:min(maxFrames, len(frames))] {
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

// CheckHead checks that struct stack_head of a BPF object has the layout of the Go type.
func CheckHead(spec *ebpf.CollectionSpec) error {
	var head *btf.Struct
	if err := spec.Types.TypeByName("stack_head", &head); err != nil {
		return fmt.Errorf("find struct stack_head: %w", err)
	}
	return layout.Check(head, reflect.TypeFor[stackHead]())
}
