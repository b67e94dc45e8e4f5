package probe

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestWithFunctions checks the calls of a kernel function that exists on all kernels with BTF for which
// calls are possible, and of one that does not exist.
func TestWithFunctions(t *testing.T) {
	const missing = "corescope_no_such_function"
	call := func(name string) asm.Instruction {
		return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: -1}.WithReference(name)
	}
	check := func(name string) asm.Instruction { return asm.LoadImm(asm.R1, 0, asm.DWord).WithReference(name) }
	k, err := NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	const known = "tcp_slow_start" // bpf_tcp_ca.c, Linux 5.13
	prog := &ebpf.ProgramSpec{Type: ebpf.PerfEvent, Instructions: asm.Instructions{
		check(known), call(known).WithSymbol("label"), check(missing), call(missing), asm.Return(),
	}}
	k.prepare(map[string]bool{known: true, missing: true})
	if k.found == nil || len(k.found.Func(known)) != 1 {
		t.Skipf("the kernel has no single function %s, or types of modules are needed", known)
	}
	resolved := k.withFunctions(prog)
	if !k.covers(resolved) {
		t.Error("the library would relocate the program with all types")
	}
	got := resolved.Instructions
	id := int64(k.found.Func(known)[0])
	if got[0].Constant != id || got[1].Constant != id || !got[1].IsKfuncCall() || got[1].Symbol() != "label" {
		t.Errorf("%s has the ID %d: got\n%v", known, id, got[:2])
	}
	if got[2].Constant != 0 || got[3].IsKfuncCall() || got[3].Constant != int64(noFunction) {
		t.Errorf("%s does not exist: got\n%v", missing, got[2:4])
	}
	for _, ins := range got {
		if ins.Reference() != "" {
			t.Errorf("%v: the library would search %s in all types", ins, ins.Reference())
		}
	}
	if prog.Instructions[1].Constant != -1 {
		t.Error("the program itself was changed")
	}
}
