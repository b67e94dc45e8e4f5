package tplist

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// finder finds objects and their arguments.
type finder struct {
	target.Finder
	env *tool.Env
	// types are the types of the kernel ("") and its modules; nil if there are none.
	types map[string]*btf.Spec
	// modules lists the modules that have types.
	modules func() ([]string, error)
}

// rows returns a row per name in a file or module.
func (f *finder) rows(all []target.Place) ([]row, error) {
	type key struct{ module, name string }
	index := map[key]int{}
	var rows []row
	for i := range all {
		p := &all[i]
		k := key{p.Module, p.Name}
		at, ok := index[k]
		if !ok {
			at = len(rows)
			index[k] = at
			r, err := f.row(p)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
		rows[at].Count++
		if p.Kind == target.User || p.Kind == target.USDT {
			rows[at].Places = append(rows[at].Places, place{p.Offset, p.Operands})
		}
	}
	return rows, nil
}

func (f *finder) row(p *target.Place) (row, error) {
	r := row{Name: value.Bytes(p.Name)}
	switch p.Kind {
	case target.Tracepoint:
		r.Kind, r.Name = "tracepoint", value.Bytes(strings.Replace(p.Name, "/", ":", 1))
		fields, err := f.Fields(p)
		if err != nil {
			return r, err
		}
		r.Args = fieldsOf(fields)
	case target.USDT:
		r.Kind, r.File, r.Args = "usdt", value.Bytes(p.Module), operands(p.Operands)
		r.Semaphore = value.Count{N: p.Semaphore, Given: p.Semaphore != 0}
	case target.User:
		r.Kind, r.File = "function", value.Bytes(p.Module)
	case target.Kernel:
		r.Kind, r.Module = "kernel_function", p.Module
		if proto := f.proto(p.Module, p.Name); proto != nil {
			r.Returns, r.Args = target.TypeName(proto.Return), params(proto.Params)
		}
	}
	return r, nil
}

// typesOf returns the types of a module or of the kernel, or nil.
func (f *finder) typesOf(module string) *btf.Spec {
	if f.types == nil {
		f.types = map[string]*btf.Spec{}
	}
	spec, ok := f.types[module]
	if !ok {
		spec, _ = f.env.KernelTypes(module) // without BTF, arguments are unknown
		f.types[module] = spec
	}
	return spec
}

// proto returns the type of a kernel function, or nil. Of several functions with a name it is unknown.
func (f *finder) proto(module, name string) *btf.FuncProto {
	var fn *btf.Func
	if spec := f.typesOf(module); spec == nil || spec.TypeByName(name, &fn) != nil {
		return nil
	}
	proto, _ := fn.Type.(*btf.FuncProto)
	return proto
}

// rawPrefix is the start of the names of types that describe raw tracepoints.
const rawPrefix = "btf_trace_"

// raw finds raw tracepoints.
func (f *finder) raw(pattern string) ([]row, error) {
	match, err := target.Matcher(pattern)
	if err != nil {
		return nil, err
	}
	if f.typesOf("") == nil {
		_, err := f.env.KernelTypes("")
		return nil, fmt.Errorf("list raw tracepoints: %w", err)
	}
	modules, err := f.modules()
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, module := range append([]string{""}, modules...) {
		found, err := f.rawOf(module, match)
		if err != nil {
			return nil, fmt.Errorf("list raw tracepoints: %w", err)
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

func (f *finder) rawOf(module string, match func(string) bool) ([]row, error) {
	spec := f.typesOf(module)
	if spec == nil {
		return nil, nil // the module was unloaded
	}
	protos := map[string]*btf.FuncProto{}
	for t, err := range spec.All() {
		if err != nil {
			return nil, err
		}
		def, ok := t.(*btf.Typedef)
		if !ok {
			continue
		}
		name, ok := strings.CutPrefix(def.Name, rawPrefix)
		pointer, isPointer := def.Type.(*btf.Pointer)
		if !ok || !isPointer || !match(name) {
			continue
		}
		if proto, ok := pointer.Target.(*btf.FuncProto); ok {
			protos[name] = proto
		}
	}
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(protos)) {
		rows = append(rows, row{
			Kind: "raw_tracepoint", Module: module, Name: value.Bytes(name), Count: 1,
			Args: params(f.named(module, name, protos[name]).Params[1:]),
		})
	}
	return rows, nil
}

// named returns the type of the function that calls the programs of a raw tracepoint: unlike the type
// of the tracepoint it has names. Kernels without it have only the types. Its first parameter is not an argument.
func (f *finder) named(module, name string, proto *btf.FuncProto) *btf.FuncProto {
	iter := f.proto(module, "__traceiter_"+name)
	if iter != nil && len(iter.Params) == len(proto.Params) {
		return iter
	}
	if len(proto.Params) == 0 {
		return &btf.FuncProto{Params: make([]btf.FuncParam, 1)}
	}
	return proto
}
