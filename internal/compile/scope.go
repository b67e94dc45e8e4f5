package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/usdt"
)

// builtins returns the variables available in every probe. Each calls a helper.
func builtins() map[string]Var {
	u32, u64 := ints()["u32"], ulongType()
	call := func(fn asm.BuiltinFunc, insns ...asm.Instruction) asm.Instructions {
		return append(asm.Instructions{fn.Call()}, insns...)
	}
	high := asm.RSh.Imm(asm.R0, 32) // upper half of the result
	out := map[string]Var{
		"pid":    {Type: u32, load: call(asm.FnGetCurrentPidTgid, high)},
		"tid":    {Type: u32, load: call(asm.FnGetCurrentPidTgid)},
		"uid":    {Type: u32, load: call(asm.FnGetCurrentUidGid)},
		"gid":    {Type: u32, load: call(asm.FnGetCurrentUidGid, high)},
		"cpu":    {Type: u32, load: call(asm.FnGetSmpProcessorId)},
		"cgroup": {Type: u64, load: call(asm.FnGetCurrentCgroupId)},
		"ts":     {Type: u64, load: call(asm.FnKtimeGetNs)},
		"comm":   {Type: &btf.Array{Type: ints()["char"], Nelems: commSize}, comm: true},
	}
	for name, v := range maps.Clone(out) {
		out["$"+name], out["$"+strings.ToUpper(name)] = v, v
	}
	// In trace of BCC, $pid is what the kernel calls it: the thread.
	out["$tgid"], out["$pid"] = out["pid"], out["tid"]
	return out
}

// task returns the current task, whose members can be read.
func (s *Scope) task() (Var, error) {
	of, err := typeName{words: []string{"struct", "task_struct"}}.resolve(s.Types)
	if err != nil {
		return Var{}, fmt.Errorf("%w: $task: %w", ErrType, err)
	}
	return Var{Type: &btf.Pointer{Target: of}, load: asm.Instructions{asm.FnGetCurrentTask.Call()}}, nil
}

// register returns a register of the function, as ctx->dx.
func (s *Scope) register(name string) (Var, error) {
	if s.Registers == nil {
		return Var{}, fmt.Errorf("%w: ctx->%s: only functions have registers", ErrType, name)
	}
	v, ok := s.Registers[name]
	if !ok {
		return v, fmt.Errorf("%w: register %s is unknown here (available: %s)", ErrType, name,
			strings.Join(slices.Sorted(maps.Keys(s.Registers)), ", "))
	}
	return v, nil
}

// Bytes is a variable of 8 bytes that is read from memory: at offset from the address in a word of
// the context.
func Bytes(t btf.Type, word, offset int) Var {
	return Var{Type: t, emit: func(g *generator) error {
		g.emit(asm.LoadMem(asm.R0, regContext, int16(word), asm.DWord), asm.Add.Imm(asm.R0, int32(offset)))
		if err := g.read(8); err != nil {
			return err
		}
		g.emit(asm.LoadMem(asm.R0, asm.RFP, scratch, asm.DWord))
		return nil
	}}
}

// Saved returns a variable of 8 bytes that the caller of fetch has stored at an offset from the output
// buffer. It has no value if the bit in the 8 bytes at offset missing is set, unless bit is negative.
func Saved(t btf.Type, offset, missing, bit int) Var {
	return Var{Type: t, emit: func(g *generator) error {
		if bit >= 0 {
			g.emit(asm.LoadMem(asm.R1, regOut, int16(missing), asm.DWord), asm.JSet.Imm(asm.R1, 1<<bit, g.fail))
		}
		g.emit(asm.LoadMem(asm.R0, regOut, int16(offset), asm.DWord))
		return nil
	}}
}

// NameOf returns the expression that consists of the name.
func NameOf(name string) Expr { return &nameExpr{name} }

// Argument returns an argument of a USDT probe.
func Argument(a *usdt.Arg) Var {
	t := &btf.Int{Name: fmt.Sprintf("u%d", 8*a.Size), Size: uint32(a.Size)}
	if a.Signed {
		t.Name, t.Encoding = fmt.Sprintf("s%d", 8*a.Size), btf.Signed
	}
	if a.Size == 8 && !a.Signed {
		t.Name = ulongType().Name
	}
	return Var{Type: t, emit: func(g *generator) error {
		g.part(asm.R0, a.Base)
		if a.Index != nil {
			g.part(asm.R1, a.Index)
			g.emit(asm.LSh.Imm(asm.R1, int32(a.Shift)), asm.Add.Reg(asm.R0, asm.R1))
		}
		g.emit(asm.LoadImm(asm.R2, a.Disp, asm.DWord), asm.Add.Reg(asm.R0, asm.R2))
		if a.Kind != usdt.Memory {
			return nil
		}
		if err := g.read(int32(a.Size)); err != nil {
			return err
		}
		g.emit(asm.LoadMem(asm.R0, asm.RFP, scratch, sizeOf(uint32(a.Size))))
		return nil
	}}
}

// part loads a part of a register of the traced program, or 0.
func (g *generator) part(to asm.Register, r *usdt.Reg) {
	if r == nil {
		g.emit(asm.Mov.Imm(to, 0))
		return
	}
	g.emit(asm.LoadMem(to, regContext, int16(r.Offset), asm.DWord))
	drop := int32(64 - 8*uint32(r.Size))
	g.emit(asm.LSh.Imm(to, max(0, drop-int32(r.Shift))))
	if r.Signed {
		g.emit(asm.ArSh.Imm(to, drop))
	} else {
		g.emit(asm.RSh.Imm(to, drop))
	}
}

// names returns the available names, for messages.
func (s *Scope) names() string {
	all := slices.Collect(maps.Keys(s.Vars))
	for name := range builtins() {
		if !strings.HasPrefix(name, "$") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// Word returns a variable stored in 8 bytes of the context, such as an argument passed in a
// register.
func Word(t btf.Type, offset int) Var {
	return Var{Type: t, load: asm.Instructions{asm.LoadMem(asm.R0, regContext, int16(offset), asm.DWord)}}
}

// Untyped returns the variable, marked as a register whose C type is unknown: a narrower value may
// leave any bits in the upper part of it.
func (v Var) Untyped() Var {
	v.untyped = true
	return v
}

// IsUntyped reports whether an expression is calculated from constants and variables without a type
// only, so that the C type of its value is unknown.
func IsUntyped(e Expr, s *Scope) bool {
	switch e := e.(type) {
	case *nameExpr:
		return s.Vars[e.name].untyped
	case *memberExpr:
		name, ok := e.x.(*nameExpr)
		return ok && e.arrow && name.name == "ctx" && s.isRecord("ctx") && s.Registers[e.name].untyped
	case *unaryExpr:
		return (e.op == "-" || e.op == "~") && IsUntyped(e.x, s)
	case *binaryExpr:
		switch e.op {
		case "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>":
		default:
			return false // the result is a truth value
		}
		_, isConstantX := Constant(e.x)
		_, isConstantY := Constant(e.y)
		x, y := IsUntyped(e.x, s), IsUntyped(e.y, s)
		return x && y || x && isConstantY || isConstantX && y
	}
	return false
}

// Record returns a variable stored at an offset of the context. The value of arrays and
// structs is their address.
func Record(t btf.Type, offset int) Var {
	s, ok := scalarOf(t)
	if !ok {
		return Var{Type: t, load: asm.Instructions{asm.Mov.Reg(asm.R0, regContext), asm.Add.Imm(asm.R0, int32(offset))}}
	}
	return Var{Type: t, load: asm.Instructions{asm.LoadMem(asm.R0, regContext, int16(offset), sizeOf(s.size))}}
}

// Located returns a variable of variable length (__data_loc): 4 bytes at offset hold its
// location, whose lower half is relative to base in the context.
func Located(t btf.Type, offset, base int) Var {
	return Var{Type: t, load: asm.Instructions{
		asm.LoadMem(asm.R0, regContext, int16(offset), asm.Word),
		asm.And.Imm(asm.R0, 0xffff),
		asm.Mov.Reg(asm.R1, regContext),
		asm.Add.Imm(asm.R1, int32(base)),
		asm.Add.Reg(asm.R1, asm.R0),
		asm.Mov.Reg(asm.R0, asm.R1),
	}}
}

// TypeByName returns the type with the given name, as written in tracefs. types may be nil.
//
// Returns ErrType and ErrSyntax.
func TypeByName(name string, types *btf.Spec) (btf.Type, error) {
	tokens, err := lex(name)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	t, ok := p.typeName()
	if !ok || p.peek().kind != tokenEnd {
		return nil, p.unexpected()
	}
	return t.resolve(types)
}

// isRecord reports whether name denotes the context itself, because there is no variable of
// that name.
func (s *Scope) isRecord(name string) bool {
	_, ok := s.Vars[name]
	return !ok
}

// IsText reports whether an expression is an array of or a pointer to char.
//
// Returns ErrType.
func IsText(e Expr, s *Scope) (bool, error) {
	if IsComm(e) {
		return true, nil
	}
	g := &generator{scope: s, fail: "none", none: "none"}
	t, err := g.value(e)
	if err != nil {
		return false, err
	}
	of, ok := elem(t)
	if !ok {
		return false, nil
	}
	i, ok := btf.UnderlyingType(of).(*btf.Int)
	return ok && i.Name == "char", nil
}
