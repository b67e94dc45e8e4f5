package probe

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestDropUnused checks what stays of programs: instructions that set a register to a number are named by it.
func TestDropUnused(t *testing.T) {
	set := func(r asm.Register, n int32) asm.Instruction { return asm.Mov.Imm(r, n) }
	copyTo := asm.Mov.Reg
	call := asm.FnKtimeGetNs.Call()
	for _, test := range []struct {
		name    string
		program asm.Instructions
		stays   []int32
	}{
		{"set again", asm.Instructions{set(asm.R0, 1), set(asm.R0, 2)}, []int32{2}},
		{"result", asm.Instructions{set(asm.R0, 1), set(asm.R1, 2)}, []int32{1}},
		{"argument", asm.Instructions{set(asm.R1, 1), call}, []int32{1}},
		{"set by call", asm.Instructions{set(asm.R0, 1), call}, nil},
		{"not set by call", asm.Instructions{set(asm.R6, 1), call, copyTo(asm.R0, asm.R6)}, []int32{1}},
		{"half", asm.Instructions{set(asm.R0, 1), asm.Mov.Reg32(asm.R0, asm.R1)}, nil},
		{"added", asm.Instructions{set(asm.R0, 1), asm.Add.Imm(asm.R0, 2)}, []int32{1}},
		{"address", asm.Instructions{set(asm.R2, 1), asm.LoadMem(asm.R0, asm.R2, 0, asm.Word)}, []int32{1}},
		{"chain", append(loadConstant(asm.R1, 0, asm.Word), copyTo(asm.R2, asm.R1), set(asm.R0, 1)), []int32{1}},
		{"stored", asm.Instructions{set(asm.R2, 1), asm.StoreMem(asm.RFP, -8, asm.R2, asm.DWord), set(asm.R0, 2)}, []int32{1, 2}},
		{"compared and exchanged", asm.Instructions{set(asm.R0, 1), asm.CmpXchg.Mem(asm.RFP, asm.R1, asm.DWord, -8), set(asm.R0, 2)}, []int32{1, 2}},
		{"condition", asm.Instructions{set(asm.R2, 1), jump(asm.JEq, asm.R2, 0, 1), set(asm.R0, 2), set(asm.R0, 3)}, []int32{1, 3}},
		{"on one path", asm.Instructions{set(asm.R0, 1), jump(asm.JEq, asm.R1, 0, 1), set(asm.R0, 2)}, []int32{1, 2}},
		{"on no path", asm.Instructions{set(asm.R2, 1), jump(asm.JEq, asm.R1, 0, 2), set(asm.R0, 2), goTo(1), set(asm.R0, 3)}, []int32{2, 3}},
		{"loop", asm.Instructions{set(asm.R2, 1), copyTo(asm.R0, asm.R2), set(asm.R2, 2), jump(asm.JEq, asm.R1, 0, -3)}, []int32{1, 2}},
		{"sum that is not used", asm.Instructions{set(asm.R2, 1), asm.Add.Imm(asm.R2, 2), jump(asm.JEq, asm.R1, 0, -2), set(asm.R0, 3)}, []int32{3}},
		{"long jump", asm.Instructions{set(asm.R2, 1), set(asm.R0, 2), asm.LongJump("")}, []int32{1, 2}},
	} {
		spec := foldObject(append(append(asm.Instructions{asm.Mov.Reg(asm.R9, asm.R1)}, test.program...), asm.Return()))
		dropUnused(spec)
		got := spec.Programs["program"].Instructions
		var stays []int32
		for _, ins := range got {
			if ins.OpCode == asm.Mov.Op(asm.ImmSource) {
				stays = append(stays, int32(ins.Constant))
			}
		}
		if !slices.Equal(stays, test.stays) || got[0].Symbol() != "program" {
			t.Errorf("%s: %v stay, want %v:\n%v", test.name, stays, test.stays, got)
		}
	}
	spec := foldObject(append(loadConstant(asm.R1, 0, asm.Word), set(asm.R0, 1), asm.Return()))
	dropUnused(spec)
	if got := spec.Programs["program"].Instructions; len(got) != 3 || got[0].Symbol() != "program" {
		t.Errorf("the first instruction and two others must stay, not:\n%v", got)
	}
}

// randomProgram returns a program of arithmetic, memory on the stack and jumps forwards. Its result depends on
// what most of them do.
func randomProgram(r *rand.Rand) asm.Instructions {
	const size, slots = 60, 4
	register := func() asm.Register { return asm.Register(r.IntN(9)) }
	operations := []asm.ALUOp{asm.Add, asm.Sub, asm.Mul, asm.Xor, asm.And, asm.Or, asm.Mov, asm.Mov}
	jumps := []asm.JumpOp{asm.JEq, asm.JNE, asm.JGT, asm.JSLE, asm.JSet}
	at := func() int16 { return int16(-8 * (1 + r.IntN(slots))) }
	var p asm.Instructions
	for i := range int32(9) {
		p = append(p, asm.Mov.Imm(asm.Register(i), r.Int32N(100)))
	}
	for i := range slots {
		p = append(p, asm.StoreMem(asm.RFP, int16(-8*(i+1)), asm.Register(i), asm.DWord))
	}
	for i := range size {
		op := operations[r.IntN(len(operations))]
		over := int16(r.IntN(min(8, size-i)))
		switch r.IntN(7) {
		case 0:
			p = append(p, op.Imm(register(), r.Int32N(100)))
		case 1:
			p = append(p, op.Reg32(register(), register()))
		case 2:
			p = append(p, asm.StoreMem(asm.RFP, at(), register(), asm.DWord))
		case 3:
			p = append(p, asm.LoadMem(register(), asm.RFP, at(), asm.Word))
		case 4:
			p = append(p, jump(jumps[r.IntN(len(jumps))], register(), r.Int32N(100), over))
		case 5:
			ins := jumps[r.IntN(len(jumps))].Reg(register(), register(), "")
			ins.Offset = over
			p = append(p, ins)
		default:
			p = append(p, op.Reg(register(), register()))
		}
	}
	return append(p, asm.Return())
}

// TestDropUnusedRandom runs random programs before and after: the results are equal.
func TestDropUnusedRandom(t *testing.T) {
	needRoot(t)
	run := func(p asm.Instructions) uint32 {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: p, License: "GPL"})
		if err != nil {
			t.Fatalf("load program: %v\n%v", err, p)
		}
		defer prog.Close()
		result, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	before, after := 0, 0
	results := map[uint32]bool{}
	for seed := range uint64(300) {
		p := randomProgram(rand.New(rand.NewPCG(1, seed)))
		spec := foldObject(slices.Clone(p))
		dropUnused(spec)
		dropped := spec.Programs["program"].Instructions
		want := run(p)
		if got := run(dropped); got != want {
			t.Errorf("seed %d: the result is %#x, want %#x:\n%v\n%v", seed, got, want, p, dropped)
		}
		before, after, results[want] = before+len(p), after+len(dropped), true
	}
	if after > before*9/10 || len(results) < 50 {
		t.Errorf("%d of %d instructions stay, %d different results: the programs test little", after, before, len(results))
	}
}
