// Package compile compiles expressions to BPF instructions. Expressions use C syntax and
// refer to the arguments of a function or the fields of a tracepoint by name; pointers can be
// dereferenced. The package needs neither a compiler nor headers, only the BTF of the kernel.
//
// Arithmetic uses 64 bits. It is signed unless an operand is a pointer or an unsigned 64-bit
// type. An expression has no value if it reads inaccessible memory or divides by zero: as a
// field it is missing, never 0. As a condition it is false if it divides by zero or reads through a
// null pointer. If other memory was inaccessible, the condition is unread: the program cannot read
// a page that is not resident, so the condition may be true.
package compile

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// ErrType is returned for an expression that is syntactically correct but invalid, for
// example because of an unknown name or member.
var ErrType = errors.New("expression")

// Var is a variable.
type Var struct {
	Type btf.Type
	// load leaves the value in R0; for arrays and structs, the address. R9 is the context.
	load asm.Instructions
	// comm is set for the name of the current task, which only a helper can read.
	comm bool
	// emit, if set, replaces load.
	emit func(*generator) error
	// untyped is set for a register whose type is unknown, see Untyped.
	untyped bool
}

// Scope holds the names available to expressions.
type Scope struct {
	// Types are the types of the kernel, for casts. It may be nil.
	Types *btf.Spec
	// Vars are the variables of the probe, in addition to those of the current task.
	Vars map[string]Var
	// Constants returns the value of an enumerator of the kernel. It may be nil.
	Constants func(name string) (int64, bool)
	// Entry returns the value that an argument had at the entry of the call. It may be nil.
	Entry func(name string) (Var, error)
	// Unknown is the reason why arguments are unknown, or nil.
	Unknown error
	// Registers are the registers of the function by name, nil if there are none.
	Registers map[string]Var
	// Binary makes STRCMP("{0x1, 0x2}", value) compare these bytes.
	Binary bool
	// UserFirst makes reads try user memory before kernel memory.
	UserFirst bool
}

// Field is an expression to evaluate.
type Field struct {
	Name string
	Expr Expr
	// Text reads the string that the expression points to.
	Text bool
}

// Program is a set of conditions and fields to evaluate at each hit of a probe.
type Program struct {
	// Where are conditions that must all be true. It may be nil.
	Where  []Expr
	Fields []Field
	// TextSize is the maximum length of a string in bytes.
	TextSize int
}

// Slot is the location of a field in the output.
type Slot struct {
	Name   string
	Offset int
	// Size is the size of the value: 8, or for a text the maximum number of bytes read. A
	// text that fills all of them may be truncated.
	Size int
	Type btf.Type
	// Text slots start with 8 bytes for the length of the text, including its NUL, followed
	// by the bytes of the text.
	Text bool
}

// Result is a compiled program.
type Result struct {
	// Body is the body of a function fetch(ctx, out). It returns Wanted if all conditions are
	// true, Unwanted if one is false, and else Unread.
	Body asm.Instructions
	// Sleepable is the same for sleepable programs, which read pages that are not resident. It
	// is nil if it would not differ.
	Sleepable asm.Instructions
	// Slots follow 8 bytes with a bitmap of the fields that have no value.
	Slots []Slot
	// Size is the size of the output. BufferSize is the required size of the output buffer, which
	// includes space for comparisons of strings.
	Size, BufferSize int
}

// Results of the function fetch, FETCH_* of fetch.bpf.h.
const (
	Unwanted = iota
	Wanted
	Unread
)

// Registers and stack offsets.
const (
	regOut     = asm.R8
	regContext = asm.R9
	scratch    = -8 // stack slot that memory is read to
	temps      = 8  // maximum number of operands saved on the stack
	fieldsMax  = 64
)

// generator emits instructions.
type generator struct {
	scope *Scope
	insns asm.Instructions
	// name is the prefix of the labels, which must be unique within a program.
	name   string
	labels int
	depth  int
	// fail is the label to jump to if the expression has no value because memory could not be
	// read, and none if it has no value for another reason.
	fail, none string
	// sleepable makes reads of user memory wait for pages that are not resident. faults is set
	// if there are such reads.
	sleepable, faults bool
	// text is the offset in the output buffer of the space for comparisons of strings, and
	// textNeed its size.
	text, textNeed int
}

// Compile compiles a program to the body of a function with the given name.
//
// Returns ErrType.
func Compile(name string, p *Program, scope *Scope) (*Result, error) {
	if len(p.Fields) > fieldsMax {
		return nil, fmt.Errorf("%w: too many fields: %d, the maximum is %d", ErrType, len(p.Fields), fieldsMax)
	}
	r := &Result{}
	r.layout(p)
	g := &generator{scope: scope, name: name, text: r.Size}
	if err := g.program(p, r.Slots); err != nil {
		return nil, err
	}
	r.Body, r.BufferSize = g.insns, r.Size+g.textNeed
	if !g.faults {
		return r, nil
	}
	g = &generator{scope: scope, name: name, text: r.Size, sleepable: true}
	if err := g.program(p, r.Slots); err != nil {
		return nil, err
	}
	r.Sleepable = g.insns
	return r, nil
}

// program emits the function fetch.
func (g *generator) program(p *Program, slots []Slot) error {
	g.emit(asm.Mov.Reg(regContext, asm.R1), asm.Mov.Reg(regOut, asm.R2))
	g.zero(regOut, 0)
	unwanted, unread := g.label(), g.label()
	if err := g.conditions(p.Where, unwanted, unread); err != nil {
		return err
	}
	for i := range p.Fields {
		if err := g.field(i, &p.Fields[i], &slots[i]); err != nil {
			return err
		}
	}
	for at := 0; at < g.textNeed; at += 8 { // equal values must result in equal bytes
		g.zero(regOut, g.text+at)
	}
	g.emit(asm.Mov.Imm(asm.R0, Wanted), asm.Return())
	for _, end := range []struct {
		label  string
		result int32
	}{{unwanted, Unwanted}, {unread, Unread}} {
		if g.isUsed(end.label) {
			g.mark(end.label)
			g.emit(asm.Mov.Imm(asm.R0, end.result), asm.Return())
		}
	}
	return nil
}

// conditions evaluates all conditions. It jumps to unwanted if one is false, even if memory of
// another one could not be read, and else to unread if there is such a condition.
func (g *generator) conditions(all []Expr, unwanted, unread string) error {
	anyUnread := false
	for _, where := range slices.Collect(conjuncts(all)) {
		g.fail, g.none = g.label(), unwanted
		if err := g.condition(where); err != nil {
			return err
		}
		g.emit(asm.JEq.Imm(asm.R0, 0, unwanted))
		if !g.isUsed(g.fail) {
			continue
		}
		anyUnread = true
		next := g.label()
		g.emit(asm.Ja.Label(next))
		g.mark(g.fail)
		// The bitmap of the fields is not in use yet.
		g.emit(asm.Mov.Imm(asm.R1, 1), asm.StoreMem(regOut, 0, asm.R1, asm.DWord))
		g.mark(next)
	}
	if anyUnread {
		g.emit(asm.LoadMem(asm.R1, regOut, 0, asm.DWord), asm.JNE.Imm(asm.R1, 0, unread))
	}
	return nil
}

// conjuncts yields the operands of && of each expression, and all other expressions as they are.
func conjuncts(all []Expr) iter.Seq[Expr] {
	return func(yield func(Expr) bool) {
		for _, e := range all {
			b, ok := e.(*binaryExpr)
			if !ok || b.op != "&&" {
				if !yield(e) {
					return
				}
				continue
			}
			for operand := range conjuncts([]Expr{b.x, b.y}) {
				if !yield(operand) {
					return
				}
			}
		}
	}
}

// layout assigns slots to the fields.
func (r *Result) layout(p *Program) {
	r.Size = 8
	for _, f := range p.Fields {
		s := Slot{Name: f.Name, Offset: r.Size, Size: 8, Text: f.Text}
		if r.Size += 8; f.Text {
			if s.Size = p.TextSize + 2; IsComm(f.Expr) {
				s.Size = commSize
			}
			r.Size += (s.Size + 7) &^ 7
		}
		r.Slots = append(r.Slots, s)
	}
}

// field evaluates a field and stores its value in the slot.
func (g *generator) field(i int, f *Field, s *Slot) error {
	missing, done := g.label(), g.label()
	g.fail, g.none = missing, missing
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

// zero clears 8 bytes. It uses R1.
func (g *generator) zero(base asm.Register, at int) {
	g.emit(asm.Mov.Imm(asm.R1, 0), asm.StoreMem(base, int16(at), asm.R1, asm.DWord))
}

// mark places a label, on an instruction without effect.
func (g *generator) mark(label string) {
	g.emit(asm.Mov.Imm(asm.R5, 0).WithSymbol(label))
}

// isUsed reports whether an instruction jumps to the label. The verifier rejects unreachable
// instructions.
func (g *generator) isUsed(label string) bool {
	return slices.ContainsFunc(g.insns, func(ins asm.Instruction) bool { return ins.Reference() == label })
}

// push saves R0 on the stack.
func (g *generator) push() error {
	if g.depth == temps {
		return fmt.Errorf("%w: too many nested operators, the maximum is %d", ErrType, temps)
	}
	g.depth++
	g.emit(asm.StoreMem(asm.RFP, int16(scratch-8*g.depth), asm.R0, asm.DWord))
	return nil
}

// top loads the value saved last.
func (g *generator) top(dst asm.Register) {
	g.emit(asm.LoadMem(dst, asm.RFP, int16(scratch-8*g.depth), asm.DWord))
}

// pop loads the value saved last and removes it from the stack.
func (g *generator) pop(dst asm.Register) {
	g.top(dst)
	g.depth--
}
