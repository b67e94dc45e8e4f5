package probe

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
)

// Options say how an object is loaded.
type Options struct {
	// Variables are constants of the programs, by name.
	Variables map[string]any
	// MapEntries sets the sizes of maps.
	MapEntries map[string]uint32
	// PerfBuffer makes the map "events" a perf event array also where the kernel has the
	// ring buffer. Elsewhere it always is one.
	PerfBuffer bool
	// Without lists hooks that are not wanted, Optional those that may be missing.
	Without, Optional []string
	// StandIns are hooks in place of others.
	StandIns []StandIn
	// Files says by name in which files of user space programs are attached.
	Files map[string]binary.Files
	// Notify, if set, is told of files that no program could be attached in, and the like:
	// of what does not end the run, but shows less. It is called from any goroutine.
	Notify func(error)
	// Force allows hooks just one variant each: "HOOK=KIND".
	Force []string
	// Instances are the targets of hooks that have none of their own.
	Instances []Instance
	// Sampling says when programs of perf events run.
	Sampling Sampling
	// Settle are iterators that run once, before the programs are detached, and count what
	// was not observed.
	Settle []Iterator
	// Uretprobes allows uretprobes also for functions that exceptions can leave (ErrUnsafeReturn).
	Uretprobes bool
	// Kernel is always there.
	Kernel *Kernel
}

// Objects are what was loaded and attached. Closing them leaves nothing attached and
// nothing loaded, but for maps with variables: these are mapped into memory, and go
// with the next garbage collection or the process.
type Objects struct {
	Maps      map[string]*ebpf.Map
	Variables map[string]*ebpf.Variable
	// Tried has each hook's attempts; the last one was taken if its Err is nil.
	Tried map[string][]Attempt
	// Refused are targets that could not be had, where others could.
	Refused []Refusal
	// Closed are processes whose mappings this process may not read. Files that only they
	// map are not traced.
	Closed []uint32

	spec     *ebpf.CollectionSpec
	options  Options
	programs map[string]*ebpf.Program
	// uses are the maps of each program.
	uses map[string]map[string]*ebpf.Map
	// ahead are programs that are being loaded before their turn.
	ahead map[string]*loading
	// iterators run only as they are read; they leave nothing running.
	iterators map[Iterator]*link.Iter
	grace     *gracePeriods
	user      *user
	// returns has the attach points for the returns of user functions. Files are followed by another goroutine.
	returns   map[returnKey]*exits
	returnsMu sync.Mutex
	mu        sync.Mutex // a signal may detach while a run ends by itself, and a file come
	links     []link.Link
	detached  bool
	// unfired is what Unfired counted of the links that are closed.
	unfired uint64
}

// Load sets the variables in spec and makes the object's maps. The programs follow
// with [Objects.Attach].
//
// Returns ErrNotPermitted, ErrUnsupported and ErrNoBTF, and none of them where
// descriptors or memory are short.
func Load(spec *ebpf.CollectionSpec, o Options) (*Objects, error) {
	// Kernels before 5.11 count BPF memory as locked. Where the limit cannot be raised,
	// creating maps tells.
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	if o.Kernel.found == nil {
		o.Kernel.Prepare(spec)
	}
	if err := o.Kernel.check(); err != nil {
		return nil, err
	}
	o.PerfBuffer = o.PerfBuffer || o.Kernel.lacksRingBuffer(spec)
	if err := setUp(spec, o); err != nil {
		return nil, err
	}
	if err := checkDescriptors(spec, o); err != nil {
		return nil, err
	}
	grace, err := newGracePeriods()
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: common(spec), Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create maps: %w", Classify(err)), grace.Close())
	}
	objects := &Objects{
		Maps: coll.Maps, Variables: coll.Variables, Tried: map[string][]Attempt{},
		spec: spec, options: o, programs: map[string]*ebpf.Program{}, uses: map[string]map[string]*ebpf.Map{}, ahead: map[string]*loading{},
		iterators: map[Iterator]*link.Iter{}, grace: grace, returns: map[returnKey]*exits{},
	}
	objects.user = newUser(objects)
	return objects, nil
}

// userSpace is the tag of maps that user space reads or writes: USER_SPACE of map.bpf.h.
const userSpace = "user_space"

// common are the maps that user space accesses, by their tag, and those that contain
// variables. Others are created with the first program that uses them, so that a variant that
// is not loaded costs no memory.
func common(spec *ebpf.CollectionSpec) map[string]*ebpf.MapSpec {
	maps := map[string]*ebpf.MapSpec{}
	for name, m := range spec.Maps {
		if slices.Contains(m.Tags, userSpace) {
			maps[name] = m
		}
	}
	for _, v := range spec.Variables {
		maps[v.SectionName] = spec.Maps[v.SectionName]
	}
	return maps
}

func setUp(spec *ebpf.CollectionSpec, o Options) error {
	for name, val := range o.Variables {
		if err := setVariable(spec, name, val); err != nil {
			return fmt.Errorf("set variable %s: %w", name, err)
		}
	}
	for name, entries := range o.MapEntries {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = entries
		}
	}
	preallocate(spec, o.Kernel)
	useMulti(spec, &o)
	if m := spec.Maps["events"]; m != nil && o.PerfBuffer {
		m.Type, m.KeySize, m.ValueSize, m.MaxEntries = ebpf.PerfEventArray, 4, 4, 0
		return setVariable(spec, "event_perf_buffer", true)
	}
	return nil
}

// Attach takes the first variant of each hook that this kernel has. After an error,
// what was attached before it is so until Close.
//
// Programs in user space are attached in the files that are there, and until Detach in
// those that come.
//
// Returns a HookError, which is ErrNotPermitted or ErrUnsupported, ErrNoVariant and
// ErrNoPlace; and none of these where descriptors or memory are short.
func (o *Objects) Attach() error {
	hooks, err := o.Hooks()
	if err != nil {
		return err
	}
	if err := o.user.find(); err != nil {
		return err
	}
	o.startAll(hooks)
	defer o.closeAhead()
	var missed error // of a hook that may be missing, but not as all others are
	attached := len(hooks) == 0
	hooks, others := o.standIns(hooks)
	for _, h := range hooks {
		err := o.attachEither(h, others)
		var missing *HookError
		switch {
		case err == nil:
			attached = true
		case errors.As(err, &missing) && slices.Contains(o.options.Optional, h.Name):
			missed = cmp.Or(missed, err)
		default:
			return err
		}
	}
	if !attached {
		return missed
	}
	if err := o.prepareSettling(); err != nil {
		return err
	}
	if err := o.closeUnused(); err != nil {
		return fmt.Errorf("close maps: %w", err)
	}
	return o.user.begun()
}

func (o *Objects) attachHook(h Hook) error {
	instances := o.instances(h)
	for _, in := range instances {
		if err := o.attachInstance(h, in); err != nil {
			return err
		}
	}
	if len(instances) > 0 {
		return nil
	}
	ok, err := o.try(h)
	if err == nil && !ok {
		err = &HookError{h.Name, o.Tried[h.Name]}
	}
	return err
}

func (o *Objects) instances(h Hook) []*Instance {
	var out []*Instance
	for i := range o.options.Instances {
		if in := &o.options.Instances[i]; in.Hook == h.Name {
			out = append(out, in)
		}
	}
	return out
}

// Hooks lists the hooks that are wanted, with the variants that are allowed. Those whose
// programs name no target are wanted if an instance gives them some.
func (o *Objects) Hooks() ([]Hook, error) {
	hooks := Hooks(o.spec)
	if err := force(hooks, o.options.Force); err != nil {
		return nil, err
	}
	hooks = slices.DeleteFunc(hooks, func(h Hook) bool {
		isWithoutTarget := isOpen(o.spec.Programs[h.Variants[0].Programs[0]]) && len(o.instances(h)) == 0
		return isWithoutTarget || slices.Contains(o.options.Without, h.Name)
	})
	return choose(hooks, o.options.StandIns, o.options.Force), nil
}

func (o *Objects) try(h Hook) (ok bool, err error) {
	for _, v := range h.Variants {
		links, err := o.attachVariant(v)
		if short := shortage(err); short != nil {
			return false, fmt.Errorf("attach hook %s: %s: %w", h.Name, v, short)
		}
		o.Tried[h.Name] = append(o.Tried[h.Name], Attempt{Variant: v, Err: err})
		if err == nil {
			o.keep(links)
			return true, nil
		}
	}
	return false, nil
}

// keep keeps links until Detach. What comes after that is closed.
func (o *Objects) keep(links []link.Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.detached {
		closeTogether(links)
		return
	}
	o.links = append(o.links, links...)
}

func (o *Objects) notify(errs ...error) {
	if o.options.Notify == nil {
		return
	}
	for _, err := range errs {
		o.options.Notify(err)
	}
}

// attachVariant loads and attaches all programs of a variant. After an error none of
// them is there.
func (o *Objects) attachVariant(v Variant) ([]link.Link, error) {
	var links []link.Link
	for _, name := range v.Programs {
		more, err := o.attachProgram(name)
		if err != nil {
			o.drop(v, links)
			return nil, err
		}
		links = append(links, more...)
	}
	return links, nil
}

func (o *Objects) attachProgram(name string) ([]link.Link, error) {
	if p, ok := userPlace(o.spec.Programs[name].SectionName); ok {
		return o.user.attach(name, p)
	}
	prog, err := o.Program(name)
	if err != nil {
		return nil, err
	}
	var l link.Link
	if spec := o.spec.Programs[name]; spec.Type == ebpf.PerfEvent {
		l, err = newSampler(prog, o.options.Sampling)
	} else {
		l, err = attach(spec, prog)
	}
	if err != nil {
		return nil, err
	}
	return []link.Link{l}, nil
}

// drop detaches and unloads a variant; its maps stay, as others may share them.
func (o *Objects) drop(v Variant, links []link.Link) {
	closeTogether(links)
	o.user.forget(v.Programs)
	for name, prog := range o.programs {
		own, _, _ := strings.Cut(name, forCookie)
		if own, _, _ = strings.Cut(own, forForm); slices.Contains(v.Programs, own) {
			prog.Close()
			delete(o.programs, name)
		}
	}
}

// Explain tries every variant of every hook, and every iterator, and returns how they
// fared.
func (o *Objects) Explain() (map[string][]Attempt, error) {
	hooks, err := o.Hooks()
	if err != nil {
		return nil, err
	}
	if err := o.user.find(); err != nil {
		return nil, err
	}
	out := map[string][]Attempt{}
	for _, h := range hooks {
		for _, v := range h.Variants {
			o.forgetReturns()
			err := o.tryOut(h, v)
			if short := shortage(err); short != nil {
				return nil, fmt.Errorf("explain hook %s: %s: %w", h.Name, v, short)
			}
			out[h.Name] = append(out[h.Name], Attempt{Variant: v, Err: err, Returns: o.returnsIn(v)})
		}
	}
	for name, spec := range o.spec.Programs {
		if spec.AttachType == ebpf.AttachTraceIter {
			_, err := o.Program(name)
			out[name] = []Attempt{{Variant: Variant{"iter", []string{name}, []string{spec.SectionName}}, Err: err}}
		}
	}
	return out, nil
}

// tryOut attaches a variant and lets it go.
func (o *Objects) tryOut(h Hook, v Variant) error {
	instances := o.instances(h)
	if len(instances) == 0 {
		links, err := o.attachVariant(v)
		o.drop(v, links)
		return err
	}
	for _, in := range instances {
		targets, refused := o.splitUnsafe(h, in.numbered())
		refused = append(refused, o.attachTargets(v, in, targets)...)
		if len(refused) > 0 && (!in.Some || len(refused) == len(in.Targets)) {
			return refused[0].err
		}
	}
	return o.Detach()
}

// Taken lists the hooks with what was taken for them, as "open: tp_btf/sys_exit", and
// the iterators that are prepared.
func (o *Objects) Taken() []string {
	var out []string
	for name, tried := range o.Tried {
		for _, a := range tried {
			if a.Err == nil {
				out = append(out, name+": "+a.Variant.String()+o.where(a.Variant))
			}
		}
	}
	for i := range o.iterators {
		out = append(out, i.Program+": "+o.spec.Programs[i.Program].SectionName)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Has reports whether a way to the hook was taken.
func (o *Objects) Has(hook string) bool {
	tried := o.Tried[hook]
	return len(tried) > 0 && tried[len(tried)-1].Err == nil
}

// Attached reports whether programs may still run.
func (o *Objects) Attached() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.links) > 0
}

// Detach detaches all programs, and returns when none of them runs any more. Counters,
// buffers and maps can still be read.
func (o *Objects) Detach() error {
	ended := o.user.end()
	o.mu.Lock()
	defer o.mu.Unlock()
	settled := o.settle()
	for _, l := range o.links {
		o.unfired += unfired(l)
	}
	err := closeTogether(o.links)
	if len(o.links) > 0 {
		err = errors.Join(err, o.AwaitGracePeriod())
	}
	o.links, o.detached = nil, true
	return errors.Join(ended, settled, err)
}

// Close detaches and frees all.
func (o *Objects) Close() error {
	errs := []error{o.Detach(), closeAll(slices.Collect(maps.Values(o.iterators)))}
	for _, p := range o.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range o.Maps {
		errs = append(errs, m.Close())
	}
	errs = append(errs, o.grace.Close())
	o.grace = nil
	clear(o.iterators)
	clear(o.programs)
	clear(o.Maps)
	clear(o.Variables)
	return errors.Join(errs...)
}

func closeAll[C io.Closer](all []C) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
