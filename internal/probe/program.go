package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Program loads one program, if it is not loaded.
func (o *Objects) Program(name string) (*ebpf.Program, error) {
	spec := o.spec.Programs[name]
	if spec == nil {
		return nil, fmt.Errorf("the object has no program %s", name)
	}
	return o.load(name, spec)
}

// load loads a program, and the maps that only it needs, and keeps it by that name.
func (o *Objects) load(name string, spec *ebpf.ProgramSpec) (*ebpf.Program, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if prog := o.programs[name]; prog != nil {
		return prog, nil
	}
	l := o.ahead[name]
	if l == nil {
		var err error
		if l, err = o.start(name, spec); err != nil {
			return nil, fmt.Errorf("load %s: %w", spec.SectionName, err)
		}
	}
	delete(o.ahead, name)
	<-l.done
	if l.err != nil {
		return nil, fmt.Errorf("load %s: %w", spec.SectionName, l.err)
	}
	o.programs[name] = l.prog
	o.uses[name] = l.maps
	return l.prog, nil
}

// loading is a program that is being loaded.
type loading struct {
	done chan struct{}
	maps map[string]*ebpf.Map
	prog *ebpf.Program
	err  error
}

// start begins to load a program. Its maps are there when it returns.
func (o *Objects) start(name string, spec *ebpf.ProgramSpec) (*loading, error) {
	used, err := o.makeMaps(spec)
	if err != nil {
		return nil, err
	}
	l := &loading{done: make(chan struct{}), maps: used}
	go func() {
		l.prog, l.err = o.loadProgram(name, spec, used)
		close(l.done)
	}()
	return l, nil
}

// startAll begins to load the programs of the hooks' first ways, as the kernel verifies
// several at a time. It stops at an error, which comes up again when its turn has come.
func (o *Objects) startAll(hooks []Hook) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range hooks {
		if len(o.instances(h)) > 0 {
			continue
		}
		for _, name := range h.Variants[0].Programs {
			spec := o.spec.Programs[name]
			if _, ok := userPlace(spec.SectionName); ok || o.programs[name] != nil {
				continue
			}
			l, err := o.start(name, spec)
			if err != nil {
				return
			}
			o.ahead[name] = l
		}
	}
}

// closeAhead closes the programs whose turn has not come.
func (o *Objects) closeAhead() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.ahead {
		if <-l.done; l.err == nil {
			l.prog.Close()
		}
	}
	clear(o.ahead)
}

// makeMaps makes those of the program's maps that are not there, and returns all of them.
// They stay if the program cannot be loaded, as the next way mostly has the same ones.
func (o *Objects) makeMaps(spec *ebpf.ProgramSpec) (map[string]*ebpf.Map, error) {
	used, fresh := map[string]*ebpf.Map{}, map[string]*ebpf.MapSpec{}
	for _, ins := range spec.Instructions {
		ref := ins.Reference()
		if !ins.IsLoadFromMap() || ref == "" {
			continue
		}
		if used[ref] = o.Maps[ref]; used[ref] == nil {
			fresh[ref] = o.spec.Maps[ref]
		}
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: fresh, Types: o.spec.Types, ByteOrder: o.spec.ByteOrder})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	for ref := range fresh {
		used[ref] = coll.DetachMap(ref)
		o.Maps[ref] = used[ref]
	}
	return used, nil
}

// closeUnused closes the maps of ways that were not taken.
func (o *Objects) closeUnused() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	used := common(o.spec)
	for name := range o.programs {
		for ref := range o.uses[name] {
			used[ref] = o.spec.Maps[ref]
		}
	}
	var errs []error
	for ref, m := range o.Maps {
		if used[ref] == nil {
			errs = append(errs, m.Close())
			delete(o.Maps, ref)
		}
	}
	return errors.Join(errs...)
}

func (o *Objects) loadProgram(name string, spec *ebpf.ProgramSpec, maps map[string]*ebpf.Map) (*ebpf.Program, error) {
	kernel := o.options.Kernel
	target, known, err := kernel.targetID(spec)
	if err != nil {
		return nil, err
	}
	if known {
		if prog, err := loadFound(spec, target, kernel, maps); err == nil || errors.Is(err, errRefused) {
			return prog, err
		}
	}
	all := &ebpf.CollectionSpec{
		Programs: map[string]*ebpf.ProgramSpec{name: spec}, Maps: map[string]*ebpf.MapSpec{},
		Types: o.spec.Types, ByteOrder: o.spec.ByteOrder,
	}
	for ref := range maps {
		all.Maps[ref] = o.spec.Maps[ref]
	}
	coll, err := ebpf.NewCollectionWithOptions(all, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{
			KernelTypes: kernel.typesFor(spec), ExtraRelocationTargets: kernel.moduleTypes(spec),
		}, MapReplacements: maps, Cache: kernel.cache,
	})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}
