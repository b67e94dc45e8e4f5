package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// Program loads a program if it is not loaded yet.
func (o *Objects) Program(name string) (*ebpf.Program, error) {
	spec := o.spec.Programs[name]
	if spec == nil {
		return nil, fmt.Errorf("load program %s: the object does not contain it", name)
	}
	return o.load(name, spec)
}

// load loads a program and creates the maps that only it uses, and stores it under that name.
func (o *Objects) load(name string, spec *ebpf.ProgramSpec) (*ebpf.Program, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if prog := o.programs[name]; prog != nil {
		return prog, nil
	}
	l := o.preloading[name]
	if l == nil {
		var err error
		if l, err = o.start(name, spec); err != nil {
			return nil, fmt.Errorf("load %s: %w", spec.SectionName, err)
		}
	}
	delete(o.preloading, name)
	<-l.done
	if l.err != nil {
		return nil, fmt.Errorf("load %s: %w", spec.SectionName, l.err)
	}
	o.programs[name] = l.prog
	o.uses[name] = l.maps
	return l.prog, nil
}

// errNotLoaded is the error of a program whose loading panicked.
var errNotLoaded = errors.New("the program was not loaded")

// loading is a program that is being loaded.
type loading struct {
	done chan struct{}
	maps map[string]*ebpf.Map
	prog *ebpf.Program
	err  error
}

// start begins to load a program in the background. Its maps exist when start returns.
func (o *Objects) start(name string, spec *ebpf.ProgramSpec) (*loading, error) {
	used, err := o.createMaps(spec)
	if err != nil {
		return nil, err
	}
	l := &loading{done: make(chan struct{}), maps: used, err: errNotLoaded}
	go func() {
		defer close(l.done)
		o.Guarded(func() { l.prog, l.err = o.loadProgram(name, spec, used) })()
	}()
	return l, nil
}

// preload begins to load the programs that Attach needs first, the largest at the beginning, because the kernel
// can verify several programs concurrently, and while the caller opens what it reads from. It stops at the
// first error: Attach reports it, when it loads that program again.
func (o *Objects) preload() {
	hooks, err := o.Hooks()
	if err != nil {
		return
	}
	names := o.firstPrograms(hooks)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(o.verified(b), o.verified(a)) })
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		if o.programs[name] != nil || o.preloading[name] != nil {
			continue
		}
		l, err := o.start(name, o.spec.Programs[name])
		if err != nil {
			return
		}
		o.preloading[name] = l
	}
}

// firstPrograms lists the programs of the kernel in the first variant of each hook, and the iterators.
func (o *Objects) firstPrograms(hooks []Hook) (names []string) {
	for _, h := range hooks {
		if len(o.instances(h)) > 0 {
			continue
		}
		for _, name := range h.Variants[0].Programs {
			if o.verified(name) > 0 {
				names = append(names, name)
			}
		}
	}
	for _, i := range slices.Concat(o.options.Begin, o.options.Settle) {
		if o.spec.Programs[i.Program] != nil {
			names = append(names, i.Program)
		}
	}
	return names
}

// verified returns how many instructions the kernel verifies, if a program is loaded without a target in user
// space, otherwise 0.
func (o *Objects) verified(program string) int {
	spec := o.spec.Programs[program]
	if _, ok := parseUserSection(spec.SectionName); ok {
		return 0
	}
	return len(spec.Instructions)
}

// closePreloaded closes the preloaded programs that were not attached.
func (o *Objects) closePreloaded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.preloading {
		if <-l.done; l.err == nil {
			l.prog.Close()
		}
	}
	clear(o.preloading)
}

// createMaps creates the maps of a program that do not exist yet, and returns all of its maps. If
// the program cannot be loaded, the maps are kept, because the next variant usually has the same
// ones.
func (o *Objects) createMaps(spec *ebpf.ProgramSpec) (map[string]*ebpf.Map, error) {
	used, missing := map[string]*ebpf.Map{}, map[string]*ebpf.MapSpec{}
	for _, ins := range spec.Instructions {
		ref := ins.Reference()
		if !ins.IsLoadFromMap() || ref == "" {
			continue
		}
		if used[ref] = o.Maps[ref]; used[ref] == nil {
			missing[ref] = o.spec.Maps[ref]
		}
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: withoutTypes(missing), Types: o.spec.Types, ByteOrder: o.spec.ByteOrder})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	for ref := range missing {
		used[ref] = coll.DetachMap(ref)
		o.Maps[ref] = used[ref]
	}
	return used, nil
}

// closeUnused closes the maps of variants that were not attached.
func (o *Objects) closeUnused() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	used := userMaps(o.spec)
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

// loadProgram loads a program with its maps, with the library unless its target is known by ID.
func (o *Objects) loadProgram(name string, spec *ebpf.ProgramSpec, maps map[string]*ebpf.Map) (*ebpf.Program, error) {
	kernel := o.options.Kernel
	target, ok, err := kernel.targetID(spec)
	if err != nil {
		return nil, err
	}
	if ok {
		if prog, err := loadByTypeID(spec, target, kernel, maps); err == nil || errors.Is(err, errNoLog) {
			return prog, err
		}
	}
	spec = kernel.withFunctions(spec)
	all := &ebpf.CollectionSpec{
		Programs: map[string]*ebpf.ProgramSpec{name: spec}, Maps: map[string]*ebpf.MapSpec{},
		Types: o.spec.Types, ByteOrder: o.spec.ByteOrder,
	}
	for ref := range maps {
		all.Maps[ref] = o.spec.Maps[ref]
	}
	defer kernel.lockAll(spec)()
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
