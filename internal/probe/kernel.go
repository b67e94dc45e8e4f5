package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/vmlinux"
)

// Kernel is the running kernel's types. Decoding all of them costs a dozen milliseconds
// and megabytes, so that is done only when asked; what an object needs is found by name.
type Kernel struct {
	cache *btf.Cache
	given *btf.Spec
	// found is what was found of the names, which are those of an object; nil where only
	// all types will do.
	found   *vmlinux.Found
	modules []*btf.Spec // what loaded modules have of the names
	names   map[string]bool
	missing map[string]bool
	// haveMapType is features.HaveMapType if it is nil; tests replace it.
	haveMapType func(ebpf.MapType) error
}

// NewKernel returns the kernel whose types are in the BTF file, or the kernel's own
// without one.
func NewKernel(file string) (*Kernel, error) {
	k := &Kernel{cache: btf.NewCache()}
	if file == "" {
		return k, nil
	}
	spec, err := btf.LoadSpec(file)
	if err != nil {
		return nil, fmt.Errorf("read BTF: %w", err)
	}
	k.given = spec
	return k, nil
}

// CheckBTF returns ErrOtherBTF for a BTF file that differs from the BTF of the running kernel.
// Programs that are relocated by the types of another kernel load, but read the wrong bytes.
// Where the kernel does not show BTF of its own there is nothing to compare with.
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

// Types returns all types, or ErrNoBTF where the kernel has none.
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

// check returns ErrNoBTF where the kernel has no types.
func (k *Kernel) check() error {
	if k.found != nil {
		return nil
	}
	_, err := k.Types()
	return err
}

// own are the names of types that this package and its users look at, whatever the object.
var own = []string{"cgroup_subsys_id", "bpf_mem_alloc", "spinlock"}

// Prepare looks for what the object's programs are relocated by and attached to.
func (k *Kernel) Prepare(spec *ebpf.CollectionSpec) {
	names := map[string]bool{}
	for _, name := range own {
		names[name] = true
	}
	for _, prog := range spec.Programs {
		addNames(names, prog)
	}
	k.prepare(names)
}

// prepare finds the names. Where that cannot be done, and where a module has a function that the
// kernel lacks, all types are needed as they come.
func (k *Kernel) prepare(names map[string]bool) {
	k.found = nil
	if k.given != nil {
		return
	}
	found, err := vmlinux.Find(names)
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

// TypeByName finds a type that has the name and the kind of what typ points to, as
// [btf.Spec.TypeByName] does.
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

// Has reports whether the kernel or a module that is loaded describes a type of that name.
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

// typesFor are the types to relocate a program with, or nil for all that there are.
func (k *Kernel) typesFor(prog *ebpf.ProgramSpec) *btf.Spec {
	if k.given != nil || !k.covers(prog) {
		return k.given
	}
	return k.found.Types
}

// moduleTypes are further types to relocate a program with: those that typesFor lacks.
func (k *Kernel) moduleTypes(prog *ebpf.ProgramSpec) []*btf.Spec {
	if k.given != nil || !k.covers(prog) {
		return nil
	}
	return k.modules
}

// covers tells whether all that the program needs was looked for.
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

// addNames adds the names of the types that a program's relocations are about, of the
// kernel's functions that it calls, and of what it is attached to.
func addNames(names map[string]bool, prog *ebpf.ProgramSpec) {
	if _, name := target(prog); name != "" {
		names[name] = true
	}
	for i := range prog.Instructions {
		ins := &prog.Instructions[i]
		if r := btf.CORERelocationMetadata(ins); r != nil {
			names[relocated(r)] = true
		}
		if ins.IsKfuncCall() {
			names[ins.Reference()] = true
		}
	}
}

// relocated is the name of the type that a relocation is about, without a flavour. The
// library keeps it to itself.
func relocated(r *btf.CORERelocation) string {
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

// targetKind is what a program is attached to by its ID.
type targetKind int

const (
	noTarget targetKind = iota
	functionTarget
	typedefTarget
)

// target is the name that the kernel's types have for what a tracing program is attached to.
func target(prog *ebpf.ProgramSpec) (targetKind, string) {
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

// functions are the IDs of the kernel's functions that the program calls: 0 where neither
// the kernel nor a module has one.
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

// targetID is the kernel's ID of what a program is attached to. It returns an error that
// is ErrNotSupported where neither the kernel nor a module has it, and false where it is
// not known: the library finds it then among all types, or says why not.
func (k *Kernel) targetID(prog *ebpf.ProgramSpec) (btf.TypeID, bool, error) {
	kind, name := target(prog)
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
