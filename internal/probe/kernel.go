package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/vmlinux"
)

// Kernel gives access to the types of the running kernel. Decoding all of them takes about 12 ms
// and several megabytes, so it is done only if necessary. The types that an object needs are looked
// up by name.
type Kernel struct {
	cache *btf.Cache
	given *btf.Spec // of --btf, or nil
	// index is set by Prefetch and used by prepare.
	index func() (*vmlinux.Index, error)
	// found has the types with these names. It is nil if all types are needed.
	found   *vmlinux.Found
	modules []*btf.Spec     // types of loaded modules with these names
	names   map[string]bool // that the object refers to
	missing map[string]bool // names that neither kernel nor modules have
	// haveMapType replaces features.HaveMapType in tests.
	haveMapType func(ebpf.MapType) error
	// all is locked while the library relocates a program with all types. Those of modules share those of the
	// kernel, which the library (v0.22) then decodes without a lock.
	all sync.Mutex
}

// NewKernel returns the kernel described by the BTF file, or by its own BTF if file is empty.
func NewKernel(file string) (*Kernel, error) {
	k := &Kernel{cache: btf.NewCache()}
	if file == "" {
		return k, nil
	}
	spec, err := btf.LoadSpec(file)
	if err != nil {
		return nil, fmt.Errorf("read BTF of %s: %w", file, err)
	}
	k.given = spec
	return k, nil
}

// CheckBTF returns ErrOtherBTF for a BTF file that differs from the BTF of the running kernel.
// Programs that are relocated with the types of another kernel load, but read wrong offsets. If the
// kernel provides no BTF, or it cannot be read, CheckBTF returns nil.
func CheckBTF(file string) error {
	same, err := vmlinux.IsRunning(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil
	case err != nil:
		return err
	case !same:
		return fmt.Errorf("%s: %w", file, ErrOtherBTF)
	}
	return nil
}

// Types returns all types, or ErrNoBTF if the kernel provides none.
func (k *Kernel) Types() (*btf.Spec, error) {
	if k.given != nil {
		return k.given, nil
	}
	spec, err := k.cache.Kernel()
	if errors.Is(err, btf.ErrNotSupported) {
		return nil, ErrNoBTF
	}
	if err != nil {
		return nil, fmt.Errorf("read kernel BTF: %w", err)
	}
	return spec, nil
}

// ModuleTypes returns the types of a loaded module.
func (k *Kernel) ModuleTypes(name string) (*btf.Spec, error) {
	if k.given != nil {
		return nil, fmt.Errorf("read BTF of module %s: the types of modules are those of the kernel itself, not of --btf: %w", name, ErrNoBTF)
	}
	spec, err := k.cache.Module(name)
	if err != nil {
		return nil, fmt.Errorf("read BTF of module %s: %w", name, err)
	}
	return spec, nil
}

// Prefetch begins to read the kernel's types in the background, and what the library asks the kernel before it
// loads the first program. It is called before Prepare.
func (k *Kernel) Prefetch() {
	raiseLimit()
	if k.given == nil {
		k.index = sync.OnceValues(vmlinux.NewIndex)
	}
	index := k.index
	go func() {
		if index != nil {
			_, _ = index()
		}
		_ = btf.KernelMarshalOptions() // the library keeps the answers
	}()
}

// check returns ErrNoBTF if the kernel provides no types.
func (k *Kernel) check() error {
	if k.found != nil {
		return nil
	}
	_, err := k.Types()
	return err
}

// alwaysNames are names of types that this package and its users look up for every object.
var alwaysNames = []string{"cgroup_subsys_id", "bpf_mem_alloc", "spinlock", tracepointGuard}

// tracepointGuard is a type that exists if programs of tp_btf and raw_tp can be preempted, from
// Linux 7.0 on: see TRACEPOINTS_ARE_PREEMPTIBLE in compat.bpf.h.
const tracepointGuard = "class_srcu_fast_notrace_t"

// preemptsTracepoints reports whether programs of tp_btf and raw_tp can be preempted. The kernel
// then skips their runs for other tasks on that CPU.
func (k *Kernel) preemptsTracepoints() bool {
	var guard *btf.Typedef
	return k.TypeByName(tracepointGuard, &guard) == nil
}

// Prepare looks up the types that the programs of an object are relocated with and attached to.
func (k *Kernel) Prepare(spec *ebpf.CollectionSpec) {
	names := map[string]bool{}
	for _, name := range alwaysNames {
		names[name] = true
	}
	for _, prog := range spec.Programs {
		addNames(names, prog)
	}
	k.prepare(names)
}

// prepare looks up the names. If that fails, or if one of them is a function of a module, found
// stays nil and all types are used.
func (k *Kernel) prepare(names map[string]bool) {
	k.found = nil
	if k.given != nil {
		return
	}
	open := vmlinux.NewIndex
	if k.index != nil {
		open, k.index = k.index, nil
	}
	index, err := open()
	if err != nil {
		return
	}
	defer index.Close()
	found, err := index.Find(names)
	if err != nil {
		return
	}
	missing := found.Missing(names)
	inModules, err := vmlinux.FindInModules(missing)
	if err != nil || inModules.Functions {
		return
	}
	k.found, k.modules, k.names, k.missing = found, inModules.Types, names, missing
}

// TypeByName looks up a type by its name and by the kind of type that typ points to, like
// [btf.Spec.TypeByName].
func (k *Kernel) TypeByName(name string, typ any) error {
	if k.found != nil && k.names[name] {
		return k.found.Types.TypeByName(name, typ)
	}
	if k.given == nil {
		if found, err := vmlinux.Find(map[string]bool{name: true}); err == nil {
			return found.Types.TypeByName(name, typ)
		}
	}
	all, err := k.Types()
	if err != nil {
		return err
	}
	return all.TypeByName(name, typ)
}

// Has reports whether the kernel or a loaded module has a type with that name.
func (k *Kernel) Has(name string) bool {
	names := map[string]bool{name: true}
	if k.given != nil {
		_, err := k.given.AnyTypesByName(name)
		return err == nil
	}
	if found, err := vmlinux.Find(names); err == nil && len(found.Missing(names)) == 0 {
		return true
	}
	inModules, err := vmlinux.FindInModules(names)
	return err == nil && len(inModules.Types) > 0
}

// typesFor returns the types to relocate a program with, or nil for all types.
func (k *Kernel) typesFor(prog *ebpf.ProgramSpec) *btf.Spec {
	if k.given != nil || !k.covers(prog) {
		return k.given
	}
	return k.found.Types
}

// moduleTypes returns the types of modules to relocate a program with, in addition to typesFor.
func (k *Kernel) moduleTypes(prog *ebpf.ProgramSpec) []*btf.Spec {
	if k.given != nil || !k.covers(prog) {
		return nil
	}
	return k.modules
}

// lockAll waits until no other program is loaded with all types, if this one needs them.
func (k *Kernel) lockAll(prog *ebpf.ProgramSpec) (unlock func()) {
	if k.given != nil || k.covers(prog) {
		return func() {}
	}
	k.all.Lock()
	return k.all.Unlock
}

// covers reports whether all names that the program refers to have been looked up.
func (k *Kernel) covers(prog *ebpf.ProgramSpec) bool {
	if k.found == nil {
		return false
	}
	names := map[string]bool{}
	addNames(names, prog)
	for name := range names {
		if !k.names[name] {
			return false
		}
	}
	return true
}

// addNames adds the names of the types in a program's relocations, of the kernel functions that it
// calls, and of its attach point.
func addNames(names map[string]bool, prog *ebpf.ProgramSpec) {
	if _, name := tracingTarget(prog); name != "" {
		names[name] = true
	}
	for i := range prog.Instructions {
		ins := &prog.Instructions[i]
		if r := btf.CORERelocationMetadata(ins); r != nil {
			names[relocatedType(r)] = true
		}
		if ins.IsKfuncCall() && ins.Reference() != "" { // has no ID yet
			names[ins.Reference()] = true
		}
	}
}

// relocatedType returns the name of the type that a relocation refers to, without the suffix
// ___FLAVOR. The field is not exported by the library.
func relocatedType(r *btf.CORERelocation) string {
	typ := reflect.ValueOf(r).Elem().FieldByName("typ")
	if typ.Kind() != reflect.Interface || typ.Elem().Kind() != reflect.Pointer {
		return ""
	}
	name := typ.Elem().Elem().FieldByName("Name")
	if name.Kind() != reflect.String {
		return ""
	}
	if i := strings.LastIndex(name.String(), "___"); i > 0 {
		return name.String()[:i]
	}
	return name.String()
}

// targetKind is the kind of type whose ID a tracing program is attached by.
type targetKind int

const (
	noTarget targetKind = iota
	functionTarget
	typedefTarget
)

// tracingTarget returns the kind and the BTF name of what a tracing program is attached to.
func tracingTarget(prog *ebpf.ProgramSpec) (targetKind, string) {
	if prog.Type != ebpf.Tracing || prog.AttachTo == "" {
		return noTarget, ""
	}
	switch prog.AttachType {
	case ebpf.AttachTraceRawTp:
		return typedefTarget, "btf_trace_" + prog.AttachTo
	case ebpf.AttachTraceIter:
		return functionTarget, "bpf_iter_" + prog.AttachTo
	case ebpf.AttachTraceFEntry, ebpf.AttachTraceFExit, ebpf.AttachModifyReturn:
		return functionTarget, prog.AttachTo
	}
	return noTarget, ""
}

// functions returns the BTF IDs of the kernel functions that the program calls. The ID is 0 if
// neither the kernel nor a module has the function.
func (k *Kernel) functions(prog *ebpf.ProgramSpec) (map[string]btf.TypeID, error) {
	ids := map[string]btf.TypeID{}
	for i := range prog.Instructions {
		if ins := &prog.Instructions[i]; ins.IsKfuncCall() {
			found := k.found.Func(ins.Reference())
			switch {
			case len(found) == 1:
				ids[ins.Reference()] = found[0]
			case k.missing[ins.Reference()]:
				ids[ins.Reference()] = 0
			default:
				return nil, fmt.Errorf("function %s: %w", ins.Reference(), btf.ErrMultipleMatches)
			}
		}
	}
	return ids, nil
}

// withFunctions returns the program with the IDs of the kernel functions that it calls, for which the
// library would decode all types of the kernel. If the IDs are not known, or if the program calls no
// functions, it is returned as it is.
func (k *Kernel) withFunctions(prog *ebpf.ProgramSpec) *ebpf.ProgramSpec {
	if k.given != nil || !k.covers(prog) {
		return prog
	}
	ids, err := k.functions(prog)
	if len(ids) == 0 || err != nil {
		return prog
	}
	resolved := prog.Copy()
	if err := setFunctionIDs(resolved.Instructions, ids); err != nil {
		return prog
	}
	return resolved
}

// typeIDPrefix begins the names of variables for the BTF IDs of structs, which programs pass to
// bpf_rdonly_cast.
const typeIDPrefix = "type_id_"

// setTypeIDs sets these variables. They stay 0 if the kernel does not have the function (before 6.2), or
// if the IDs are unknown: all types are used, or several structs have the name.
func (k *Kernel) setTypeIDs(spec *ebpf.CollectionSpec) error {
	if k.found == nil || len(k.found.Func("bpf_rdonly_cast")) == 0 {
		return nil
	}
	for name := range spec.Variables {
		typ, ok := strings.CutPrefix(name, typeIDPrefix)
		if !ok {
			continue
		}
		if ids := k.found.Struct(typ); len(ids) == 1 {
			if err := setVariable(spec, name, uint32(ids[0])); err != nil {
				return fmt.Errorf("set variable %s: %w", name, err)
			}
		}
	}
	return nil
}

// targetID returns the BTF ID of what a tracing program is attached to. The error wraps
// ErrNotSupported if neither the kernel nor a module has it. ok is false if the ID is ambiguous or
// was not looked up: the library then searches all types.
func (k *Kernel) targetID(prog *ebpf.ProgramSpec) (id btf.TypeID, ok bool, err error) {
	kind, name := tracingTarget(prog)
	if kind == noTarget || !k.covers(prog) {
		return 0, false, nil
	}
	if k.missing[name] {
		return 0, false, fmt.Errorf("%s: %w", prog.SectionName, ebpf.ErrNotSupported)
	}
	ids := k.found.Func(name)
	if kind == typedefTarget {
		ids = k.found.Typedef(name)
	}
	if len(ids) != 1 {
		return 0, false, nil
	}
	return ids[0], true, nil
}
