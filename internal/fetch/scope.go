package fetch

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/usdt"
)

// registers are the offsets in struct pt_regs of the first arguments of a function and of its
// return value.
func registers() (args []int, ret int) {
	if runtime.GOARCH == "arm64" {
		return []int{0, 8, 16, 24, 32, 40, 48, 56}, 0
	}
	return []int{112, 104, 96, 88, 72, 64}, 80
}

// scope has the variables that expressions can use at an attach point.
func (f *Finder) scope(p *Probe, place *target.Place) (*compile.Scope, error) {
	s := &compile.Scope{Types: f.Types, Binary: f.Binary, Vars: map[string]compile.Var{}, UserFirst: place.Kind == target.User || place.Kind == target.USDT}
	if f.enums == nil && f.Types != nil {
		f.enums = enumerators(f.Types)
	}
	s.Constants = f.constants(f.enums)
	var err error
	switch {
	case place.Kind == target.Tracepoint:
		err = f.addRecord(s, place)
	case place.Kind == target.USDT:
		err = addUSDT(s, p, place)
	case place.Return:
		f.addReturn(s, p, place)
	case place.IsSyscall:
		addSyscall(s, place)
	default:
		f.addArguments(s, place)
	}
	if place.Kind == target.User || place.Kind == target.Kernel {
		s.Registers = namedRegisters(p, place)
	}
	if err != nil {
		return nil, err
	}
	return s, f.addParams(s, p, place)
}

// addUSDT adds the arguments of a USDT probe.
func addUSDT(s *compile.Scope, p *Probe, place *target.Place) error {
	if place.ArgsErr != nil {
		s.Unknown = place.ArgsErr
		if len(p.Params) > 0 {
			return fmt.Errorf("%w: %w", compile.ErrType, place.ArgsErr)
		}
		return nil
	}
	for i := range place.Args {
		s.Vars[fmt.Sprintf("arg%d", i+1)] = compile.Argument(&place.Args[i])
	}
	return nil
}

// addSyscall adds the arguments of a system call: the registers of the caller, to which the first
// argument points. On arm64 the first of them is overwritten in some kernels, so orig_x0 is used.
func addSyscall(s *compile.Scope, place *target.Place) {
	first, _ := registers()
	offsets := []int{112, 104, 96, 56, 72, 64}
	switch {
	case runtime.GOARCH == "arm64":
		offsets = []int{272, 8, 16, 24, 32, 40}
	case place.IsIA32:
		offsets = []int{40, 88, 96, 104, 112, 32}
	}
	for i, offset := range offsets {
		s.Vars[fmt.Sprintf("arg%d", i+1)] = compile.Bytes(unknown(), first[0], offset).Untyped()
	}
}

// namedRegisters returns the registers that expressions can read. At the entry and return of kernel
// functions only those that all attach types have are known, and instructions for returns of user
// functions run before or after the return.
func namedRegisters(p *Probe, place *target.Place) map[string]compile.Var {
	all := map[string]compile.Var{}
	isPart := place.Kind == target.Kernel && p.Spec.Offset == 0
	if runtime.GOARCH == "arm64" {
		n := 31
		if isPart {
			n = 8
		}
		if isPart && place.Return {
			n = 1
		}
		all["regs"] = compile.Record(&btf.Array{Type: unknown(), Nelems: uint32(n)}, 0)
		if !place.Return {
			all["sp"] = compile.Word(unknown(), 31*8).Untyped()
		}
		if !place.Return && place.Kind == target.User {
			all["pc"] = compile.Word(unknown(), 32*8)
		}
		return all
	}
	for i, name := range usdt.Registers() {
		isArgument := slices.Contains([]string{"di", "si", "dx", "cx", "r8", "r9", "sp"}, name)
		if isPart && (place.Return && name != "ax" || !place.Return && !isArgument) || place.Return && (name == "ip" || name == "sp") {
			continue
		}
		all[name] = compile.Word(unknown(), 8*i).Untyped()
	}
	return all
}

// proto returns the type of a kernel function, or nil.
func (f *Finder) proto(place *target.Place) *btf.FuncProto {
	types := f.Types
	if place.Module != "" && f.ModuleTypes != nil && place.Kind == target.Kernel {
		types, _ = f.ModuleTypes(place.Module) // without types, arguments have numbers
	}
	if types == nil || place.Kind != target.Kernel {
		return nil
	}
	var fn *btf.Func
	if err := types.TypeByName(place.Name, &fn); err != nil {
		return nil
	}
	proto, _ := fn.Type.(*btf.FuncProto)
	return proto
}

func unknown() btf.Type { return &btf.Int{Name: "unsigned long", Size: 8} }

// addArguments adds arg1 and so on, and their names in BTF. An argument that needs more than one
// register shifts those after it, so these are omitted.
func (f *Finder) addArguments(s *compile.Scope, place *target.Place) {
	offsets, _ := registers()
	for i, offset := range offsets {
		s.Vars[fmt.Sprintf("arg%d", i+1)] = compile.Word(unknown(), offset).Untyped()
	}
	proto := f.proto(place)
	if proto == nil {
		return
	}
	for i, param := range proto.Params[:min(len(proto.Params), len(offsets))] {
		size, err := btf.Sizeof(param.Type)
		if err != nil || size > 8 {
			return
		}
		v := compile.Word(param.Type, offsets[i])
		s.Vars[fmt.Sprintf("arg%d", i+1)] = v
		if param.Name != "" {
			s.Vars[param.Name] = v
		}
	}
}

func (f *Finder) addReturn(s *compile.Scope, p *Probe, place *target.Place) {
	_, offset := registers()
	t, isKnown := unknown(), false
	if proto := f.proto(place); proto != nil {
		if size, err := btf.Sizeof(proto.Return); err == nil && size > 0 && size <= 8 {
			t, isKnown = proto.Return, true
		}
	}
	if p.isDefault && !isKnown && place.Kind == target.User {
		t, isKnown = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, true
	}
	v := compile.Word(t, offset)
	if !isKnown {
		v = v.Untyped()
	}
	for _, name := range []string{"retval", "$retval", "return"} {
		s.Vars[name] = v
	}
}

// addParams adds the names and types of arguments in the user's signature.
func (f *Finder) addParams(s *compile.Scope, p *Probe, place *target.Place) error {
	for i, param := range p.Params {
		arg, ok := s.Vars[fmt.Sprintf("arg%d", i+1)]
		if !ok && place.Return {
			continue // at a return, arguments have no value, but a signature is allowed
		}
		if !ok {
			return fmt.Errorf("%w: unknown argument %s", compile.ErrType, param.Name)
		}
		t, err := param.Resolve(s)
		if err != nil {
			return err
		}
		s.Vars[param.Name] = arg.As(t)
	}
	return nil
}

// enumerators finds constants of the kernel's enums. The first search reads all types.
func enumerators(types *btf.Spec) func(name string) (int64, bool) {
	all := sync.OnceValue(func() map[string]int64 {
		out, ambiguous := map[string]int64{}, map[string]bool{}
		for t, err := range types.All() {
			if err != nil {
				break
			}
			if e, ok := t.(*btf.Enum); ok {
				for _, v := range e.Values {
					n := int64(v.Value)
					if e.Signed && e.Size == 4 {
						n = int64(int32(n))
					}
					before, ok := out[v.Name]
					if out[v.Name] = n; ok && before != n {
						ambiguous[v.Name] = true
					}
				}
			}
		}
		for name := range ambiguous { // enums of different drivers
			delete(out, name)
		}
		return out
	})
	return func(name string) (int64, bool) {
		c, ok := all()[name]
		return c, ok
	}
}
