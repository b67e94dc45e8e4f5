package compile

import (
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// builtins are what can be named in every probe: facts of the current task, each by a helper.
func builtins() map[string]Var {
	u32, u64 := ints()["u32"], ulongType()
	call := func(fn asm.BuiltinFunc, then ...asm.Instruction) asm.Instructions {
		return append(asm.Instructions{fn.Call()}, then...)
	}
	high := asm.RSh.Imm(asm.R0, 32)
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

// names lists what can be named, for a message.
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

// Word is a variable in 8 bytes of the context: an argument in a register.
func Word(t btf.Type, offset int) Var {
	return Var{Type: t, load: asm.Instructions{asm.LoadMem(asm.R0, regContext, int16(offset), asm.DWord)}}
}

// Record is a variable at an offset in the record that the context is. Of arrays and
// structs the value is the address.
func Record(t btf.Type, offset int) Var {
	s, ok := scalarOf(t)
	if !ok {
		return Var{Type: t, load: asm.Instructions{asm.Mov.Reg(asm.R0, regContext), asm.Add.Imm(asm.R0, int32(offset))}}
	}
	return Var{Type: t, load: asm.Instructions{asm.LoadMem(asm.R0, regContext, int16(offset), sizeOf(s.size))}}
}

// Located is a variable whose place in the record is in 4 bytes at the offset, the lower
// half of which is an offset itself; from where that counts is base, or the context's
// begin if it is 0.
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

// TypeByName parses the name of a type, as tracefs writes it, and finds it. types may be nil.
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

// isRecord tells that a name is no variable, so that its members are the variables.
func (s *Scope) isRecord(name string) bool {
	_, ok := s.Vars[name]
	return !ok
}

// IsText tells expressions that are of char: arrays, and pointers.
//
// Returns ErrType.
func IsText(e Expr, s *Scope) (bool, error) {
	if isComm(e) {
		return true, nil
	}
	g := &generator{scope: s, fail: "none"}
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
