package probe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// A body contains labels. They are symbols too, but do not begin a function.
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
		t.Error("replacing a missing function: no error")
	}
	if constants(program) != "[1 2 2 3]" {
		t.Errorf("the original program was modified: %s", constants(program))
	}
}

func TestCut(t *testing.T) {
	load := func(name string) asm.Instruction { return asm.LoadMapPtr(asm.R1, 0).WithReference(name) }
	call := func(name string) asm.Instruction {
		return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}.WithReference(name)
	}
	program := func() asm.Instructions {
		return asm.Instructions{
			load("common").WithSymbol("main"), call("rare"), call("often"), asm.Return(),
			load("of_rare").WithSymbol("rare"), load("common"), call("deep"), call("helper"), asm.Return(),
			load("of_often").WithSymbol("often"), call("helper"), asm.Return(),
			load("of_deep").WithSymbol("deep"), asm.Return(),
			load("of_helper").WithSymbol("helper"), asm.Return(),
		}
	}
	newSpec := func() *ebpf.CollectionSpec {
		spec := &ebpf.CollectionSpec{
			Programs: map[string]*ebpf.ProgramSpec{"one": {Instructions: program()}, "other": {Instructions: asm.Instructions{load("of_deep").WithSymbol("other"), asm.Return()}}},
			Maps:     map[string]*ebpf.MapSpec{},
		}
		for _, name := range []string{"common", "of_rare", "of_often", "of_deep", "of_helper", "of_none"} {
			spec.Maps[name] = &ebpf.MapSpec{}
		}
		return spec
	}
	cut := newSpec()
	Cut(cut, "rare")
	insns := cut.Programs["one"].Instructions
	var functions []string
	for i := range insns {
		if symbol := insns[i].Symbol(); symbol != "" {
			functions = append(functions, symbol)
		}
	}
	if want := []string{"main", "rare", "often", "helper"}; !slices.Equal(functions, want) {
		t.Errorf("functions are %v, want %v", functions, want)
	}
	if rare := insns[4:6]; rare[0].Constant != 0 || !rare[0].OpCode.IsDWordLoad() || rare[1].OpCode != asm.Return().OpCode {
		t.Errorf("the function is\n%v", insns)
	}
	// Another program has of_deep, too.
	if names, want := slices.Sorted(maps.Keys(cut.Maps)), []string{"common", "of_deep", "of_helper", "of_none", "of_often"}; !slices.Equal(names, want) {
		t.Errorf("maps are %v, want %v", names, want)
	}
	same := newSpec()
	Cut(same, "none")
	if got := same.Programs["one"].Instructions; len(got) != len(program()) || len(same.Maps) != 6 {
		t.Errorf("cut of a missing function: %d maps are left, want 6; instructions are\n%v", len(same.Maps), got)
	}
}

func TestProgramSections(t *testing.T) {
	for section, want := range map[string]bool{
		"kprobe.multi": true, "uprobe": true, "kprobe/vfs_read": false, "uretprobe/libc:malloc": false,
	} {
		if got := namesNoTarget(&ebpf.ProgramSpec{Type: ebpf.Kprobe, SectionName: section}); got != want {
			t.Errorf("namesNoTarget of section %s: %v, want %v", section, got, want)
		}
	}
	for section, want := range map[string]bool{
		"kretprobe.multi": true, "uretprobe": true, "fexit": true, "kprobe": false, "uprobe.multi": false, "fentry": false,
	} {
		if got := isReturn(&ebpf.ProgramSpec{SectionName: section}); got != want {
			t.Errorf("isReturn of section %s: %v, want %v", section, got, want)
		}
	}
}

// TestVariantsOfInstances checks that multi is tried first with many targets, and with few the cheapest
// attach type that misses no returns.
func TestVariantsOfInstances(t *testing.T) {
	h := Hook{Variants: []Variant{{Kind: "fentry"}, {Kind: multi}, {Kind: "kprobe"}}}
	for n, want := range map[int]string{1: "fentry", maxTrampolines: "fentry", maxTrampolines + 1: multi} {
		in := Instance{Targets: make([]Target, n)}
		if got := in.variants(h, false)[0].Kind; got != want {
			t.Errorf("with %d targets, %s is tried first, want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{1: "kprobe", maxTrampolines + 1: multi} {
		in := Instance{Targets: make([]Target, n)}
		returns := Hook{Variants: h.Variants[1:]}
		if got := in.variants(returns, true)[0].Kind; got != want {
			t.Errorf("with %d targets and returns that multi misses, %s is tried first, want %s", n, got, want)
		}
	}
	if h.Variants[0].Kind != "fentry" {
		t.Error("the original hook was modified")
	}
}

// TestAttachError checks that an error names a target that the user named, but none that matched a
// pattern.
func TestAttachError(t *testing.T) {
	targets := []Target{{Name: "vfs_caches_init"}, {Name: "vfs_read"}}
	for _, tt := range []struct {
		in   Instance
		rest int
		want string
	}{
		{Instance{Targets: targets, AllowPartial: true}, 0, "attach to any of 2 targets: x"},
		{Instance{Targets: targets[1:], AllowPartial: true}, 0, "attach to vfs_read: x"},
		{Instance{Targets: targets}, 1, "attach to vfs_read: x"},
	} {
		if got := tt.in.attachError(tt.in.withIDs()[tt.rest:], errors.New("x")).Error(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
