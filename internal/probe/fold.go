package probe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// fold removes code that cannot run because of the values of constants, and the functions that only this code
// calls, except keep. The verifier removes the same code, but only after it was relocated, copied and checked:
// in most runs, that is more than half of a program. The values must not change any more: see unchanged.
func fold(spec *ebpf.CollectionSpec, known constants, keep []string) {
	var f flow
	for _, prog := range spec.Programs {
		if !isCompiled(prog.Instructions) {
			continue
		}
		fold := func(function asm.Instructions) asm.Instructions { return f.fold(function, known) }
		names := append([]string{prog.Instructions[0].Symbol()}, keep...)
		prog.Instructions = called(byFunction(prog.Instructions), fold, names...)
	}
}

// isCompiled reports whether the symbols of instructions are the functions of a program: others are labels.
func isCompiled(program asm.Instructions) bool {
	return len(program) > 0 && program[0].Symbol() != "" && !slices.ContainsFunc(program, func(ins asm.Instruction) bool {
		return isBranch(&ins) && ins.Reference() != ""
	})
}

// replaced lists the functions whose bodies are replaced when a program is loaded.
func (o *Options) replaced() []string {
	names := []string{targetFunction, formFunction}
	for _, in := range o.Instances {
		names = slices.AppendSeq(names, maps.Keys(in.Functions))
	}
	return names
}

// unchanged returns an error if a constant has another value than when the programs were folded.
func unchanged(spec *ebpf.CollectionSpec, known constants) error {
	for name, v := range spec.Variables {
		s, offset, size := known[v.SectionName], int64(v.Offset), int64(v.Size())
		if s != nil && s.isKnown(offset, size) && !bytes.Equal(s.data[offset:offset+size], v.Value) {
			return fmt.Errorf("set variable %s: the programs are already reduced for its previous value", name)
		}
	}
	return nil
}

// constants has what is known of the sections of constants (.rodata), by name.
type constants map[string]*section

type section struct {
	order binary.ByteOrder
	data  []byte
	known []bool // by byte of data
}

// constantsOf returns the constants of an object. Those that the types of the kernel determine have no value yet.
func (o *Options) constantsOf(spec *ebpf.CollectionSpec) constants {
	all := constants{}
	for name, v := range spec.Variables {
		if !v.Constant() || v.Value == nil || o.Lookups[name] != nil || strings.HasPrefix(name, typeIDPrefix) {
			continue
		}
		s := all[v.SectionName]
		if s == nil {
			s = &section{order: spec.ByteOrder}
			all[v.SectionName] = s
		}
		end := int(v.Offset + v.Size())
		s.data = append(s.data, make([]byte, max(0, end-len(s.data)))...)
		s.known = append(s.known, make([]bool, max(0, end-len(s.known)))...)
		copy(s.data[v.Offset:], v.Value)
		for i := int(v.Offset); i < end; i++ {
			s.known[i] = true
		}
	}
	return all
}

func (s *section) isKnown(offset, size int64) bool {
	return offset >= 0 && offset+size <= int64(len(s.data)) && !slices.Contains(s.known[offset:offset+size], false)
}

// load returns size bytes as a number.
func (s *section) load(offset, size int64) (uint64, bool) {
	if !s.isKnown(offset, size) {
		return 0, false
	}
	data := s.data[offset:]
	switch size {
	case 1:
		return uint64(data[0]), true
	case 2:
		return uint64(s.order.Uint16(data)), true
	case 4:
		return uint64(s.order.Uint32(data)), true
	}
	return s.order.Uint64(data), true
}

// register is what is known about the value of a register: nothing, a number, or an address in a section of
// constants, of which number is the offset.
type register struct {
	kind    registerKind
	number  uint64
	section *section
}

type registerKind int

const (
	unknown registerKind = iota
	number
	address
)

// registers are those of R0 to R10.
type registers [11]register

// outcome is what is known about a jump.
type outcome byte

const (
	undecided outcome = iota
	always
	never
)

// flow is the control flow of a function. The slices are used again for the next function.
type flow struct {
	function asm.Instructions
	// By instruction: the index of the instruction that it can jump to, or -1; whether another one jumps to it;
	// what is known if it is a jump; whether the first instruction leads to it; and where it moves to.
	targets  []int32
	isTarget []bool
	outcomes []outcome
	reached  []bool
	moved    []int32
	// By instruction: the registers that are used from it on, before they are set again.
	used []registerSet
	// at is the index of the instruction at each offset in units of 8 bytes, or -1.
	at []int32
}

// fold returns the function without the instructions that cannot be reached, or the function itself if all can,
// or if it contains a jump that is not understood.
func (f *flow) fold(function asm.Instructions, known constants) asm.Instructions {
	f.function = function
	if !f.connect() {
		return function
	}
	f.follow(known)
	if !slices.Contains(f.reached, false) {
		return function
	}
	return f.compact()
}

// connect finds the targets of jumps. It returns false if a jump is not understood.
func (f *flow) connect() bool {
	n := len(f.function)
	f.targets, f.isTarget, f.outcomes, f.reached = zero(f.targets, n), zero(f.isTarget, n), zero(f.outcomes, n), zero(f.reached, n)
	f.at = f.at[:0]
	for i := range f.function {
		f.at = append(f.at, int32(i))
		if f.function[i].OpCode.IsDWordLoad() {
			f.at = append(f.at, -1)
		}
	}
	for offset, i := range f.at {
		if i < 0 {
			continue
		}
		ins := &f.function[i]
		f.targets[i] = -1
		if !isBranch(ins) {
			continue
		}
		to := offset + 1 + int(ins.Offset)
		if to < 0 || to >= len(f.at) || f.at[to] < 0 || !isUsualJump(ins) {
			return false
		}
		f.targets[i], f.isTarget[f.at[to]] = f.at[to], true
	}
	return true
}

// zero returns n zero elements, in the same memory if it suffices.
func zero[E any](s []E, n int) []E {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// isBranch reports whether the instruction is a jump within a function.
func isBranch(ins *asm.Instruction) bool {
	if !ins.OpCode.Class().IsJump() {
		return false
	}
	op := ins.OpCode.JumpOp()
	return op != asm.Call && op != asm.Exit
}

// isUsualJump reports whether a jump has its target in Offset and, unless it is unconditional, a condition that
// holds evaluates.
func isUsualJump(ins *asm.Instruction) bool {
	op := ins.OpCode.JumpOp()
	if op == asm.Ja {
		return ins.OpCode.Class() == asm.JumpClass // with Jump32Class, the target is in Constant
	}
	_, ok := holds(op, 0, 0)
	return ok
}

// follow finds the instructions that the first one leads to. What is known about registers ends at each
// instruction that another one jumps to.
func (f *flow) follow(known constants) {
	for next := []int32{0}; len(next) > 0; {
		i := int(next[len(next)-1])
		next = next[:len(next)-1]
		var regs registers
		for ; i < len(f.function) && !f.reached[i]; i++ {
			f.reached[i] = true
			if f.isTarget[i] {
				regs = registers{}
			}
			ins := &f.function[i]
			if f.targets[i] < 0 {
				regs.step(ins, known)
				if ins.OpCode.JumpOp() == asm.Exit {
					break
				}
				continue
			}
			f.outcomes[i] = regs.decide(ins)
			if f.outcomes[i] != never {
				next = append(next, f.targets[i])
			}
			if f.outcomes[i] == always {
				break
			}
		}
	}
}

// step follows an instruction that is not a jump.
func (r *registers) step(ins *asm.Instruction, known constants) {
	class := ins.OpCode.Class()
	switch {
	case class.IsJump(): // a call, or the end
		clear(r[asm.R0 : asm.R5+1])
	case class == asm.StClass:
	case class == asm.StXClass:
		if ins.OpCode.Mode() == asm.AtomicMode { // can load what was there before
			r[ins.Src], r[asm.R0] = register{}, register{}
		}
	default:
		r[ins.Dst] = r.result(ins, known)
	}
}

// result returns what an instruction stores in its destination register.
func (r *registers) result(ins *asm.Instruction, known constants) register {
	op := ins.OpCode
	switch class := op.Class(); {
	case ins.IsLoadFromMap() && ins.Src == asm.PseudoMapValue:
		if s := known[ins.Reference()]; s != nil {
			return register{kind: address, section: s, number: uint64(ins.Constant) >> 32}
		}
	case class == asm.LdXClass && op.Mode() == asm.MemMode && r[ins.Src].kind == address:
		from := r[ins.Src]
		if n, ok := from.section.load(int64(from.number)+int64(ins.Offset), int64(op.Size().Sizeof())); ok {
			return register{kind: number, number: n}
		}
	case class.IsALU() && btf.CORERelocationMetadata(ins) == nil: // with one, the constant is not that of this kernel
		return r.calculate(ins)
	}
	return register{}
}

// calculate returns the result of an ALU instruction: those that the compiler uses to test constants.
func (r *registers) calculate(ins *asm.Instruction) register {
	b := register{kind: number, number: uint64(ins.Constant)}
	if ins.OpCode.Source() == asm.RegSource {
		b = r[ins.Src]
	}
	a, op, is64 := r[ins.Dst], ins.OpCode.ALUOp(), ins.OpCode.Class() == asm.ALU64Class
	switch {
	case ins.Offset != 0 || ins.Reference() != "": // sign extension, or a constant that is set later
		return register{}
	case op == asm.Mov && is64:
		return b
	case b.kind != number || op != asm.Mov && a.kind != number:
		return register{}
	case op == asm.Mov:
		a = b
	case op == asm.And:
		a.number &= b.number
	case op == asm.Or:
		a.number |= b.number
	default:
		return register{}
	}
	if !is64 {
		a.number = uint64(uint32(a.number))
	}
	return a
}

// decide evaluates the condition of a jump.
func (r *registers) decide(ins *asm.Instruction) outcome {
	if ins.OpCode.JumpOp() == asm.Ja {
		return always
	}
	a, b := r[ins.Dst], register{kind: number, number: uint64(ins.Constant)}
	if ins.OpCode.Source() == asm.RegSource {
		b = r[ins.Src]
	}
	if a.kind != number || b.kind != number {
		return undecided
	}
	x, y := int64(a.number), int64(b.number)
	if ins.OpCode.Class() == asm.Jump32Class {
		x, y = int64(int32(x)), int64(int32(y)) // extending the sign keeps the order of unsigned numbers too
	}
	switch jumps, ok := holds(ins.OpCode.JumpOp(), x, y); {
	case !ok:
		return undecided
	case jumps:
		return always
	}
	return never
}

// holds evaluates a condition. ok is false for other jumps.
func holds(op asm.JumpOp, x, y int64) (jumps, ok bool) {
	switch op {
	case asm.JEq:
		return x == y, true
	case asm.JNE:
		return x != y, true
	case asm.JGT:
		return uint64(x) > uint64(y), true
	case asm.JGE:
		return uint64(x) >= uint64(y), true
	case asm.JLT:
		return uint64(x) < uint64(y), true
	case asm.JLE:
		return uint64(x) <= uint64(y), true
	case asm.JSGT:
		return x > y, true
	case asm.JSGE:
		return x >= y, true
	case asm.JSLT:
		return x < y, true
	case asm.JSLE:
		return x <= y, true
	case asm.JSet:
		return x&y != 0, true
	}
	return false, false
}

// compact returns the instructions that are reached, without those jumps that are never taken.
func (f *flow) compact() asm.Instructions {
	f.moved = zero(f.moved, len(f.function))
	offset, count := int32(0), 0
	for i := range f.function {
		f.moved[i] = offset // of this instruction or, if it does not stay, the next one that does
		if f.stays(i) {
			offset += int32(f.function[i].Width())
			count++
		}
	}
	out := make(asm.Instructions, 0, count)
	for i, ins := range f.function {
		if !f.stays(i) {
			continue
		}
		if f.targets[i] >= 0 {
			ins.Offset = int16(f.moved[f.targets[i]] - f.moved[i] - 1)
			if f.outcomes[i] == always {
				ins.OpCode, ins.Dst, ins.Src, ins.Constant = asm.Ja.Op(asm.ImmSource), asm.R0, asm.R0, 0
			}
		}
		out = append(out, ins)
	}
	return out
}

func (f *flow) stays(i int) bool { return f.reached[i] && f.outcomes[i] != never }
