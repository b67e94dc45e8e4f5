package tools_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/corescope/corescope/tools"
)

// A program can be interrupted or, in user space, preempted between the load and the store of an
// addition, by a program that adds to the same counter. Maps of counters must therefore be written
// by atomic instructions only; otherwise counts, including those of lost events, can be too low.
func TestCountersAreAtomic(t *testing.T) {
	atomic := 0
	eachProgram(t, func(object, name string, prog *ebpf.ProgramSpec) {
		n, err := counterStores(prog.Instructions)
		if err != nil {
			t.Errorf("%s, program %s: %v", object, name, err)
		}
		atomic += n
	})
	if atomic == 0 {
		t.Error("no program has an atomic addition to a counter")
	}
}

// eachProgram calls f for each program in the objects of all tools.
func eachProgram(t *testing.T, f func(object, name string, prog *ebpf.ProgramSpec)) {
	t.Helper()
	for _, tl := range tools.All() {
		objects, err := filepath.Glob(tl.Name + "/bpf_*_bpfel.o.gz")
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			spec, err := loadObject(object)
			if err != nil {
				t.Fatal(err)
			}
			for name, prog := range spec.Programs {
				f(object, name, prog)
			}
		}
	}
}

// counterStores returns the number of atomic additions to counters: to the result of a lookup in a
// map of counters, which is in R0 until the next call, and to copies of it. It fails at the first
// plain store to a counter. It follows the instructions up to the next jump target.
func counterStores(ins asm.Instructions) (atomic int, err error) {
	counts := map[string]bool{"lost": true, "counters": true, "totals": true}
	targets := jumpTargets(ins)
	isMap := false
	var holds [11]bool // registers with the address of a counter
	for iter := ins.Iterate(); iter.Next(); {
		in := iter.Ins
		if targets[iter.Offset] {
			holds, isMap = [11]bool{}, false
		}
		switch class := in.OpCode.Class(); {
		case in.OpCode.IsDWordLoad() && in.Dst == asm.R1:
			isMap = counts[in.Reference()]
		case in.OpCode.JumpOp() == asm.Call:
			holds = [11]bool{asm.R0: isMap && in.IsBuiltinCall() && in.Constant == int64(asm.FnMapLookupElem)}
			isMap = false
		case class.IsALU() && in.OpCode.ALUOp() == asm.Mov:
			holds[in.Dst] = in.OpCode.Source() == asm.RegSource && holds[in.Src]
		case class.IsALU(), class.IsLoad():
			holds[in.Dst] = false
		case class.IsStore() && holds[in.Dst] && in.OpCode.Mode() == asm.AtomicMode:
			atomic++
		case class.IsStore() && holds[in.Dst]:
			return atomic, fmt.Errorf("instruction %d is a plain store to a counter: %v", iter.Index, in)
		}
	}
	return atomic, nil
}

func jumpTargets(ins asm.Instructions) map[asm.RawInstructionOffset]bool {
	targets := map[asm.RawInstructionOffset]bool{}
	for iter := ins.Iterate(); iter.Next(); {
		op := iter.Ins.OpCode.JumpOp()
		if op != asm.InvalidJumpOp && op != asm.Call && op != asm.Exit {
			targets[asm.RawInstructionOffset(int64(iter.Offset)+1+int64(iter.Ins.Offset))] = true
		}
	}
	return targets
}
