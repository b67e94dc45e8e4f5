package fetch

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/target"
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
	s := &compile.Scope{Types: f.Types, Vars: map[string]compile.Var{}, UserFirst: place.Kind == target.User || place.Kind == target.USDT}
	if f.Types != nil {
		s.Constants = enumerators(f.Types)
	}
	var err error
	switch {
	case place.Kind == target.Tracepoint:
		err = f.addRecord(s, place)
	case place.Kind == target.USDT: // its arguments are not in registers of their own
	case place.Return:
		f.addReturn(s, place)
	default:
		f.addArguments(s, place)
	}
	if err != nil {
		return nil, err
	}
	return s, addParams(s, p)
}

// proto returns the type of a kernel function, or nil.
func (f *Finder) proto(place *target.Place) *btf.FuncProto {
	if f.Types == nil || place.Kind != target.Kernel {
		return nil
	}
	var fn *btf.Func
	if err := f.Types.TypeByName(place.Name, &fn); err != nil {
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
		s.Vars[fmt.Sprintf("arg%d", i+1)] = compile.Word(unknown(), offset)
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

func (f *Finder) addReturn(s *compile.Scope, place *target.Place) {
	_, offset := registers()
	t := unknown()
	if proto := f.proto(place); proto != nil {
		if size, err := btf.Sizeof(proto.Return); err == nil && size > 0 && size <= 8 {
			t = proto.Return
		}
	}
	for _, name := range []string{"retval", "$retval", "return"} {
		s.Vars[name] = compile.Word(t, offset)
	}
}

// addParams adds the names and types of arguments in the user's signature.
func addParams(s *compile.Scope, p *Probe) error {
	for i, param := range p.Params {
		arg, ok := s.Vars[fmt.Sprintf("arg%d", i+1)]
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
		out := map[string]int64{}
		for t, err := range types.All() {
			if err != nil {
				break
			}
			if e, ok := t.(*btf.Enum); ok {
				for _, v := range e.Values {
					out[v.Name] = int64(v.Value)
				}
			}
		}
		return out
	})
	return func(name string) (int64, bool) {
		c, ok := all()[name]
		return c, ok
	}
}
