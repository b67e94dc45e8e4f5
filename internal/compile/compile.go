// Package compile makes BPF instructions of expressions: of the arguments of a function or
// the fields of a tracepoint, by name and type, with C's operators, memory behind pointers
// included. It needs no compiler and no headers, only the kernel's types.
//
// Arithmetic is done in 64 bits: signed, unless an operand is a pointer or an unsigned type of
// 64 bits. Memory that cannot be read, and division by zero, make an expression have no value:
// as a condition it is then false, and a field that is shown is missing, never 0.
package compile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// ErrType is returned for an expression that has no meaning: a name that is not known, a
// member that a struct does not have.
var ErrType = errors.New("expression")

// Var is what a name stands for.
type Var struct {
	Type btf.Type
	// load leaves the value in R0, or for arrays and structs the address. R9 is the context.
	load asm.Instructions
	// comm tells the name of the current task, which only a helper reads.
	comm bool
}

// Scope is what expressions can name.
type Scope struct {
	// Types are the kernel's, for casts to them; nil where there are none.
	Types *btf.Spec
	// Vars are what the probe has, by name, beside the current task's own.
	Vars map[string]Var
	// Constants finds the kernel's enumerators, if set.
	Constants func(name string) (int64, bool)
	// UserFirst tells that addresses are more likely the task's than the kernel's.
	UserFirst bool
}

// Field is an expression whose value is wanted.
type Field struct {
	Name string
	Expr Expr
	// Text wants the string behind an address.
	Text bool
}

// Program is what is to be computed when a probe is hit.
type Program struct {
	// Where is a condition, or nil.
	Where  []Expr
	Fields []Field
	// TextSize is how many bytes of a string are read.
	TextSize int
}

// Slot is where a field's value lies in the output.
type Slot struct {
	Name   string
	Offset int
	// Size is how many bytes of a text are read, or 8. Where all of them are there, the text
	// may be longer.
	Size int
	Type btf.Type
	// Text has the length in the first 8 bytes, with the NUL, and its bytes behind them.
	Text bool
}

// Result is a compiled program.
type Result struct {
	// Body is that of a function fetch(ctx, out). It returns 1, or 0 where the condition
	// does not hold.
	Body asm.Instructions
	// Slots lie behind 8 bytes that have a bit for each field that has no value.
	Slots []Slot
	// Size is how much of the output is written for the fields, and Room how much there
	// must be.
	Size, Room int
}

// Registers and the places in the frame.
const (
	regOut     = asm.R8
	regContext = asm.R9
	scratch    = -8 // where values are read to
	temps      = 8  // how many values may wait for their operators
	fieldsMax  = 64
)

// generator emits instructions.
type generator struct {
	scope *Scope
	insns asm.Instructions
	// name begins the labels, which are a program's only ones of that name.
	name   string
	labels int
	depth  int
	// fail is where to go when there is no value.
	fail string
	// text is where in the output there is room for a string to compare, and textNeed how much.
	text, textNeed int
}

// Compile compiles a program to the body of a function of that name.
//
// Returns ErrType.
func Compile(name string, p *Program, scope *Scope) (*Result, error) {
	if len(p.Fields) > fieldsMax {
		return nil, fmt.Errorf("%w: %d fields are too many, %d can be", ErrType, len(p.Fields), fieldsMax)
	}
	g := &generator{scope: scope, name: name}
	r := &Result{}
	r.layout(p)
	g.text = r.Size
	g.emit(
		asm.Mov.Reg(regContext, asm.R1), asm.Mov.Reg(regOut, asm.R2))
	g.zero(regOut, 0)
	skip := g.label()
	for _, where := range p.Where {
		g.fail = skip
		if err := g.condition(where); err != nil {
			return nil, err
		}
		g.emit(asm.JEq.Imm(asm.R0, 0, skip))
	}
	for i := range p.Fields {
		if err := g.field(i, &p.Fields[i], &r.Slots[i]); err != nil {
			return nil, err
		}
	}
	for at := 0; at < g.textNeed; at += 8 { // so that equal values are equal bytes
		g.zero(regOut, g.text+at)
	}
	g.emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	if g.isUsed(skip) {
		g.mark(skip)
		g.emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	}
	r.Body, r.Room = g.insns, r.Size+g.textNeed
	return r, nil
}

// layout gives the fields their places.
func (r *Result) layout(p *Program) {
	r.Size = 8
	for _, f := range p.Fields {
		s := Slot{Name: f.Name, Offset: r.Size, Size: 8, Text: f.Text}
		if r.Size += 8; f.Text {
			if s.Size = p.TextSize + 2; isComm(f.Expr) {
				s.Size = commSize
			}
			r.Size += (s.Size + 7) &^ 7
		}
		r.Slots = append(r.Slots, s)
	}
}

// field computes one field to its slot.
func (g *generator) field(i int, f *Field, s *Slot) error {
	missing, done := g.label(), g.label()
	g.fail = missing
	if f.Text {
		if err := g.readText(f.Expr, regOut, s.Offset+8, s.Size, &s.Type); err != nil {
			return err
		}
	} else {
		v, err := g.value(f.Expr)
		if err != nil {
			return err
		}
		s.Type = v
	}
	g.emit(asm.StoreMem(regOut, int16(s.Offset), asm.R0, asm.DWord))
	if !g.isUsed(missing) {
		return nil
	}
	g.emit(asm.Ja.Label(done))
	g.mark(missing)
	g.emit(
		asm.LoadMem(asm.R1, regOut, 0, asm.DWord),
		asm.LoadImm(asm.R2, int64(uint64(1)<<i), asm.DWord),
		asm.Or.Reg(asm.R1, asm.R2),
		asm.StoreMem(regOut, 0, asm.R1, asm.DWord),
	)
	g.mark(done)
	return nil
}

func (g *generator) emit(insns ...asm.Instruction) { g.insns = append(g.insns, insns...) }

func (g *generator) label() string {
	g.labels++
	return fmt.Sprintf("%s.%d", g.name, g.labels)
}

// zero clears 8 bytes, by R1.
func (g *generator) zero(base asm.Register, at int) {
	g.emit(asm.Mov.Imm(asm.R1, 0), asm.StoreMem(base, int16(at), asm.R1, asm.DWord))
}

// mark puts a label at what comes next. The instruction does nothing.
func (g *generator) mark(label string) {
	g.emit(asm.Mov.Imm(asm.R5, 0).WithSymbol(label))
}

// isUsed tells whether something jumps to a label. The kernel refuses what nothing reaches.
func (g *generator) isUsed(label string) bool {
	return slices.ContainsFunc(g.insns, func(ins asm.Instruction) bool { return ins.Reference() == label })
}

// push keeps R0 in the frame until pop.
func (g *generator) push() error {
	if g.depth == temps {
		return fmt.Errorf("%w: too many operators wait for their operands", ErrType)
	}
	g.depth++
	g.emit(asm.StoreMem(asm.RFP, int16(scratch-8*g.depth), asm.R0, asm.DWord))
	return nil
}

func (g *generator) top(to asm.Register) {
	g.emit(asm.LoadMem(to, asm.RFP, int16(scratch-8*g.depth), asm.DWord))
}

func (g *generator) pop(to asm.Register) {
	g.top(to)
	g.depth--
}
