package probe

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

func TestReplaceFunction(t *testing.T) {
	program := asm.Instructions{
		asm.Mov.Imm(asm.R0, 1).WithSymbol("main"), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("first"), asm.Mov.Imm(asm.R1, 2), asm.Return(),
		asm.Mov.Imm(asm.R0, 3).WithSymbol("last"), asm.Return(),
	}
	// A body has labels, which begin no function.
	body := asm.Instructions{asm.Mov.Imm(asm.R0, 8), asm.Mov.Imm(asm.R0, 9).WithSymbol("first.1"), asm.Return()}
	constants := func(insns asm.Instructions) string {
		var out []int64
		for _, ins := range insns {
			if ins.OpCode != asm.Return().OpCode {
				out = append(out, ins.Constant)
			}
		}
		return fmt.Sprint(out)
	}
	for name, want := range map[string]string{"main": "[8 9 2 2 3]", "first": "[1 8 9 3]", "last": "[1 2 2 8 9]"} {
		got, err := replaceFunction(program, name, body)
		if err != nil || constants(got) != want || got[0].Symbol() != "main" {
			t.Errorf("%s: %s, %v, want %s", name, constants(got), err, want)
		}
	}
	if _, err := replaceFunction(program, "none", body); err == nil {
		t.Error("a function that is not there is replaced")
	}
	if constants(program) != "[1 2 2 3]" {
		t.Errorf("the program itself is changed: %s", constants(program))
	}
}

func TestOpenPrograms(t *testing.T) {
	for section, want := range map[string]bool{
		"kprobe.multi": true, "uprobe": true, "kprobe/vfs_read": false, "uretprobe/libc:malloc": false,
	} {
		if got := isOpen(&ebpf.ProgramSpec{Type: ebpf.Kprobe, SectionName: section}); got != want {
			t.Errorf("%s: %v", section, got)
		}
	}
	for section, want := range map[string]bool{
		"kretprobe.multi": true, "uretprobe": true, "fexit": true, "kprobe": false, "uprobe.multi": false, "fentry": false,
	} {
		if got := isReturn(&ebpf.ProgramSpec{SectionName: section}); got != want {
			t.Errorf("return %s: %v", section, got)
		}
	}
}

// Many targets take the way that has them at once first, few the cheapest one.
func TestVariantsOfInstances(t *testing.T) {
	h := Hook{Variants: []Variant{{Kind: "fentry"}, {Kind: multi}, {Kind: "kprobe"}}}
	for n, want := range map[int]string{1: "fentry", fewTargets: "fentry", fewTargets + 1: multi} {
		in := Instance{Targets: make([]Target, n)}
		if got := in.variants(h)[0].Kind; got != want {
			t.Errorf("%d targets begin with %s, want %s", n, got, want)
		}
	}
	if h.Variants[0].Kind != "fentry" {
		t.Error("the hook itself is changed")
	}
}
