package compile

import (
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
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
		out["$"+name] = v
	}
	out["$tgid"] = out["pid"]
	return out
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
	if isComm(e) {
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
