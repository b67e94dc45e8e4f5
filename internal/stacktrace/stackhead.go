package stacktrace

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	mapped "github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/unwind"
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

// sizes of unwind tables that programs and user space share.
type sizes struct {
	slabBlocks uint32 // blocks per slab
	levels     int    // maximum number of levels of a tree
}

// readSizes reads them from the object. It compares the types and constants of the programs
// (struct stack_types) with those of Go.
func readSizes(spec *ebpf.CollectionSpec) (sizes, error) {
	levels, err := layout.EnumValue(spec.Types, "unwind_limit", "UNWIND_LEVELS")
	if err == nil {
		err = checkTypes(spec)
	}
	slabs := spec.Maps["unwind_slabs"]
	if err == nil && (slabs == nil || slabs.InnerMap == nil) {
		err = errors.New("the object has no map unwind_slabs")
	}
	if err != nil {
		return sizes{}, fmt.Errorf("check types for stacks: %w", err)
	}
	return sizes{slabs.InnerMap.MaxEntries, int(levels)}, nil
}

func checkTypes(spec *ebpf.CollectionSpec) error {
	var errs []error
	for name, t := range map[string]reflect.Type{
		"stack_head": reflect.TypeFor[stackHead](), "unwind_leaf": reflect.TypeFor[unwind.Leaf](), "unwind_node": reflect.TypeFor[unwind.Node](),
	} {
		var s *btf.Struct
		if err := spec.Types.TypeByName(name, &s); err != nil {
			errs = append(errs, fmt.Errorf("find struct %s: %w", name, err))
			continue
		}
		errs = append(errs, layout.Check(s, t))
	}
	for enum, values := range map[string]map[string]uint64{
		"unwind_how": {
			"HOW_FRAME_POINTER": uint64(byFramePointer), "HOW_TABLE": uint64(byTable), "HOW_GO": uint64(byGo),
			"HOW_SIGNAL": uint64(bySignal), "HOW_CODE": uint64(byCode), "HOW_SEARCH": uint64(BySearch), "HOW_INCOMPLETE": uint64(incomplete),
		},
		"unwind_base": {
			"BASE_NONE": uint64(unwind.BaseNone), "BASE_SP": uint64(unwind.BaseSP), "BASE_FP": uint64(unwind.BaseFP),
			"BASE_AT_FP": uint64(unwind.BaseAtFP), "BASE_PLT": uint64(unwind.BasePLT), "BASE_SIGNAL": uint64(unwind.BaseSignal),
			"BASE_END": uint64(unwind.BaseEnd), "BASE_OTHER": uint64(unwind.BaseOther),
		},
		"unwind_flag": {"UNWIND_RULE_GO": unwind.GoRule},
		"stack_mapping_kind": {
			"MAPPING_FILE": uint64(mapped.KindFile), "MAPPING_ANON": uint64(mapped.KindAnonymous), "MAPPING_VDSO": uint64(mapped.KindVDSO),
		},
		"stack_pid_flag": {"STACK_OUTSIDE": outside},
	} {
		errs = append(errs, layout.CheckEnum(spec.Types, enum, values))
	}
	return errors.Join(append(errs, checkDepth(spec))...)
}

// checkDepth compares MaxDepth with the default of stack_depth, which is STACKS_DEPTH.
func checkDepth(spec *ebpf.CollectionSpec) error {
	v := spec.Variables["stack_depth"]
	if v == nil {
		return errors.New("the object has no variable stack_depth")
	}
	var depth uint32
	if err := v.Get(&depth); err != nil {
		return fmt.Errorf("read variable stack_depth: %w", err)
	}
	if depth != MaxDepth {
		return fmt.Errorf("stacks have %d frames, in Go %d: %w", depth, MaxDepth, layout.ErrMismatch)
	}
	return nil
}
