package probe

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// jump is a jump over the next instructions of 8 bytes.
func jump(op asm.JumpOp, reg asm.Register, value int32, over int16) asm.Instruction {
	ins := op.Imm(reg, value, "")
	ins.Offset = over
	return ins
}

func jump32(op asm.JumpOp, reg asm.Register, value int32, over int16) asm.Instruction {
	ins := op.Imm32(reg, value, "")
	ins.Offset = over
	return ins
}

func goTo(over int16) asm.Instruction {
	return asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Offset: over}
}

// loadConstant loads the constant at an offset of .rodata into a register.
func loadConstant(reg asm.Register, offset uint32, size asm.Size) asm.Instructions {
	at := asm.LoadMapValue(reg, 0, offset).WithReference(".rodata")
	return asm.Instructions{at, asm.LoadMem(reg, reg, 0, size)}
}

// foldObject has the constants zero (at 0, 4 bytes), seven (at 4, 1 byte), minus (at 8, 8 bytes: -1) and
// type_id_task (at 16, 4 bytes), and one program.
func foldObject(program asm.Instructions) *ebpf.CollectionSpec {
	variable := func(offset uint32, value ...byte) *ebpf.VariableSpec {
		return &ebpf.VariableSpec{SectionName: ".rodata", Offset: offset, Value: value}
	}
	program[0] = program[0].WithSymbol("program")
	return &ebpf.CollectionSpec{
		ByteOrder: binary.LittleEndian,
		Variables: map[string]*ebpf.VariableSpec{
			"zero": variable(0, 0, 0, 0, 0), "seven": variable(4, 7), "minus": variable(8, 255, 255, 255, 255, 255, 255, 255, 255),
			"type_id_task": variable(16, 0, 0, 0, 0), "found": variable(20, 0),
			"runs": {SectionName: ".bss", Value: make([]byte, 8)},
		},
		Programs: map[string]*ebpf.ProgramSpec{"program": {Instructions: program}},
	}
}

// TestFold checks what stays of programs: instructions that set R0 to a number are named by it.
func TestFold(t *testing.T) {
	set := func(n int32) asm.Instruction { return asm.Mov.Imm(asm.R0, n) }
	relocated := btf.WithCORERelocationMetadata(asm.Mov.Imm(asm.R1, 0), &btf.CORERelocation{})
	tests := []struct {
		name    string
		program asm.Instructions
		stays   []int32
	}{
		{"equal", append(loadConstant(asm.R1, 0, asm.Word), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{2}},
		{"not equal", append(loadConstant(asm.R1, 0, asm.Word), jump(asm.JNE, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"else", append(loadConstant(asm.R1, 4, asm.Byte), jump(asm.JEq, asm.R1, 0, 2), set(1), goTo(1), set(2), set(3)), []int32{1, 3}},
		{"32 bits", append(loadConstant(asm.R1, 8, asm.DWord), jump32(asm.JEq, asm.R1, -1, 1), set(1), set(2)), []int32{2}},
		{"64 bits", append(loadConstant(asm.R1, 8, asm.Word), jump(asm.JEq, asm.R1, -1, 1), set(1), set(2)), []int32{1, 2}},
		{"lower half", append(loadConstant(asm.R1, 8, asm.DWord), asm.Mov.Reg32(asm.R2, asm.R1), jump(asm.JEq, asm.R2, -1, 1), set(1), set(2)), []int32{1, 2}},
		{"unsigned", append(loadConstant(asm.R1, 8, asm.DWord), jump(asm.JGT, asm.R1, 5, 1), set(1), set(2)), []int32{2}},
		{"signed", append(loadConstant(asm.R1, 8, asm.DWord), jump(asm.JSGT, asm.R1, 5, 1), set(1), set(2)), []int32{1, 2}},
		{"bits", append(loadConstant(asm.R1, 4, asm.Byte), jump(asm.JSet, asm.R1, 2, 1), set(1), set(2)), []int32{2}},
		{"mask", append(loadConstant(asm.R1, 4, asm.Byte), asm.And.Imm32(asm.R1, 1), jump32(asm.JNE, asm.R1, 0, 1), set(1), set(2)), []int32{2}},
		{"copy", append(loadConstant(asm.R1, 0, asm.Word), asm.Mov.Reg(asm.R6, asm.R1), asm.FnKtimeGetNs.Call(), jump(asm.JEq, asm.R6, 0, 1), set(1), set(2)), []int32{2}},
		{"call", append(loadConstant(asm.R1, 0, asm.Word), asm.FnKtimeGetNs.Call(), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"other operation", append(loadConstant(asm.R1, 0, asm.Word), asm.Add.Imm(asm.R1, 1), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"atomic", append(loadConstant(asm.R1, 0, asm.Word), asm.FetchAdd.Mem(asm.RFP, asm.R1, asm.DWord, -8), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"joined", append(asm.Instructions{jump(asm.JEq, asm.R2, 0, 3)}, append(loadConstant(asm.R1, 0, asm.Word), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2))...), []int32{1, 2}},
		{"no type yet", append(loadConstant(asm.R1, 16, asm.Word), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"looked up", append(loadConstant(asm.R1, 20, asm.Byte), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"between constants", append(loadConstant(asm.R1, 6, asm.Byte), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"beyond constants", append(loadConstant(asm.R1, 18, asm.DWord), jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)), []int32{1, 2}},
		{"relocated", asm.Instructions{relocated, jump(asm.JEq, asm.R1, 0, 1), set(1), set(2)}, []int32{1, 2}},
		{"loop", append(loadConstant(asm.R1, 0, asm.Word), set(1), jump(asm.JEq, asm.R1, 0, 1), set(2), jump(asm.JNE, asm.R2, 0, -4), set(3)), []int32{1, 2, 3}},
		{"long jump", append(loadConstant(asm.R1, 0, asm.Word), jump(asm.JEq, asm.R1, 0, 1), set(1), asm.LongJump("")), []int32{1}},
	}
	for _, test := range tests {
		spec := foldObject(append(test.program, asm.Return()))
		o := &Options{Lookups: Lookups{"found": func(*Kernel) (any, error) { return true, nil }}}
		known := o.constantsOf(spec)
		fold(spec, known, nil)
		got := spec.Programs["program"].Instructions
		var stays []int32
		for _, ins := range got {
			if ins.OpCode == asm.Mov.Op(asm.ImmSource) && ins.Dst == asm.R0 {
				stays = append(stays, int32(ins.Constant))
			}
		}
		if !slices.Equal(stays, test.stays) || got[0].Symbol() != "program" {
			t.Errorf("%s: %v stay, want %v:\n%v", test.name, stays, test.stays, got)
		}
		if err := unchanged(spec, known); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		spec.Variables["seven"].Value[0] = 8
		if unchanged(spec, known) == nil {
			t.Errorf("%s: no error after the value of a constant has changed", test.name)
		}
	}
}

// TestLoadChangedConstant checks that Load rejects a constant that changes after programs were folded.
func TestLoadChangedConstant(t *testing.T) {
	spec := foldObject(append(loadConstant(asm.R1, 4, asm.Byte), asm.Mov.Imm(asm.R0, 0), asm.Return()))
	change := func(*Kernel) (any, error) {
		spec.Variables["seven"].Value[0] = 8
		return true, nil
	}
	objects, err := Load(spec, Options{Lookups: Lookups{"found": change}, Kernel: newTestKernel(t)})
	if err == nil {
		objects.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "seven") {
		t.Errorf("got %v, want an error with the name of the constant", err)
	}
}

// TestFoldFunctions checks which functions stay: those that the rest of the program calls, and those to keep.
func TestFoldFunctions(t *testing.T) {
	call := func(name string) asm.Instruction {
		return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}.WithReference(name)
	}
	function := func(name string, body ...asm.Instruction) asm.Instructions {
		body[0] = body[0].WithSymbol(name)
		return append(body, asm.Return())
	}
	spec := foldObject(slices.Concat(
		function("program", append(loadConstant(asm.R1, 0, asm.Word), jump(asm.JEq, asm.R1, 0, 1), call("never"), call("always"))...),
		function("never", call("rare")), function("rare", asm.Mov.Imm(asm.R0, 1)), function("always", call("shared")),
		function("shared", asm.Mov.Imm(asm.R0, 2)), function("kept", asm.Mov.Imm(asm.R0, 3)),
	))
	var o Options
	fold(spec, o.constantsOf(spec), []string{"kept", "absent"})
	got := slices.Sorted(maps.Keys(byFunction(spec.Programs["program"].Instructions)))
	if want := []string{"always", "kept", "program", "shared"}; !slices.Equal(got, want) {
		t.Errorf("functions that stay: %q, want %q", got, want)
	}
}

// TestFoldLabels checks that a program with labels, whose symbols are not only those of functions, stays.
func TestFoldLabels(t *testing.T) {
	spec := foldObject(append(loadConstant(asm.R1, 0, asm.Word), asm.JEq.Imm(asm.R1, 0, "out"), asm.Mov.Imm(asm.R0, 1), asm.Return().WithSymbol("out")))
	var o Options
	fold(spec, o.constantsOf(spec), nil)
	if got := spec.Programs["program"].Instructions; len(got) != 5 {
		t.Errorf("%d of 5 instructions stay:\n%v", len(got), got)
	}
}

// TestFoldLikeVerifier loads programs of tools as they are and folded: the verifier, which removes what it
// cannot reach, must leave the same number of instructions. Jumps are not counted: the verifier keeps those
// whose condition it knows if another instruction leads to where they do not jump.
func TestFoldLikeVerifier(t *testing.T) {
	needRoot(t)
	const least = 20
	compared := 0
	for _, tool := range []string{"biolatency", "execsnoop", "opensnoop", "runqlat", "tcplife"} {
		whole := loadedSizes(t, tool, false)
		for name, size := range loadedSizes(t, tool, true) {
			if whole[name] == 0 {
				t.Errorf("%s: %s loads only if it is folded", tool, name)
				continue
			}
			if compared++; size != whole[name] {
				t.Errorf("%s: %s has %d instructions after verification, %d if it is not folded", tool, name, size, whole[name])
			}
			delete(whole, name)
		}
		for name := range whole {
			t.Errorf("%s: %s loads only if it is not folded", tool, name)
		}
	}
	if compared < least {
		t.Errorf("only %d programs were compared, want at least %d", compared, least)
	}
}

// loadedSizes returns how many instructions, without jumps, the programs of a tool have after verification, without those that
// this kernel does not load.
func loadedSizes(t *testing.T, tool string, folded bool) map[string]int {
	t.Helper()
	spec := readObject(t, objectPath(t, tool))
	kernel, err := NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	o := &Objects{Maps: map[string]*ebpf.Map{}, spec: spec, options: Options{Kernel: kernel}}
	if folded {
		fold(spec, o.options.constantsOf(spec), nil)
	}
	kernel.Prepare(spec)
	if err := setUp(spec, o.options); err != nil {
		t.Fatal(err)
	}
	coll, err := createUserMaps(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Maps = coll.Maps
	defer func() {
		for _, m := range o.Maps {
			m.Close()
		}
	}()
	sizes := map[string]int{}
	for name, prog := range spec.Programs {
		used, err := o.createMaps(prog)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := o.loadProgram(name, prog, used)
		if err != nil {
			t.Logf("%s: %s: %v", tool, name, err)
			continue
		}
		info, err := loaded.Info()
		if err != nil {
			t.Fatal(err)
		}
		insns, err := info.Instructions()
		if err != nil {
			t.Fatal(err)
		}
		for _, ins := range insns {
			if !isBranch(&ins) {
				sizes[name]++
			}
		}
		loaded.Close()
	}
	return sizes
}
