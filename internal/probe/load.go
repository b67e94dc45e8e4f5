package probe

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/corescope/corescope/internal/binary"
)

// Lookups has functions that return the values of constants, by name.
type Lookups map[string]func(*Kernel) (any, error)

// Options defines how an object is loaded and attached.
type Options struct {
	// Variables are constants of the programs, by name.
	Variables map[string]any
	// Lookups return constants of the programs that the types of the kernel determine.
	Lookups Lookups
	// Maps replace maps of the object, by name. They belong to Objects once Load has succeeded.
	Maps map[string]*ebpf.Map
	// MapEntries has the sizes of maps in entries, by name; for a ring buffer in bytes.
	MapEntries map[string]uint32
	// PerfBuffer replaces the ring buffer "events" by perf buffers. If the kernel has no ring
	// buffer (before 5.8), they are always used.
	PerfBuffer bool
	// Without lists hooks that are not attached, Optional hooks that may fail to attach.
	Without, Optional []string
	// StandIns are hooks that replace others that fail to attach.
	StandIns []StandIn
	// Files defines, by name, the files in user space that programs are attached in.
	Files map[string]binary.Files
	// Notify, if set, is called with errors that do not end the run but make its output
	// incomplete, such as files that no program could be attached in. It is called from any
	// goroutine.
	Notify func(error)
	// Force restricts hooks to one variant each: "HOOK=KIND".
	Force []string
	// Instances are the targets of hooks whose programs name none.
	Instances []Instance
	// Sampling defines when programs of perf events run.
	Sampling Sampling
	// Begin are iterators that run once when all programs are attached.
	Begin []Iterator
	// Settle are iterators that run once before the programs are detached, and count events
	// that began but were not observed to end.
	Settle []Iterator
	// Uretprobes allows uretprobes even for functions that an exception can leave
	// (ErrUnsafeReturn).
	Uretprobes bool
	// Panicked, if set, is called with the value and the stack of a panic in a goroutine of the run, which
	// would otherwise end the process.
	Panicked func(value any, stack []byte)
	// Early has maps that were created before, or is nil.
	Early *Early
	// Rest decodes the object with the programs that HideUnneeded has hidden. It is nil if none are.
	Rest func() (*ebpf.CollectionSpec, error)
	// Kernel is required.
	Kernel *Kernel
}

// Objects is a loaded and attached object. Close detaches and unloads everything except maps with
// variables: these are mapped into memory and are freed by a later garbage collection.
type Objects struct {
	Maps      map[string]*ebpf.Map
	Variables map[string]*ebpf.Variable
	// OptionalDescriptors is how many descriptors a run can use for maps in maps and for files of
	// other processes: the limit of open files, without what the object needs.
	OptionalDescriptors int
	// Tried has the attempts of each hook. If a variant was attached, it is the last attempt,
	// with a nil Err.
	Tried map[string][]Attempt
	// FailedTargets are the targets that failed to attach, of instances where others did not.
	FailedTargets []FailedTarget
	// Uninspected are processes whose mappings cannot be read because of missing permissions.
	// Files that only they map are not traced.
	Uninspected []uint32
	// Stop, if set, ends Attach and Explain with ErrStopped when it is closed.
	Stop <-chan struct{}
	// HandOver allows Detach to start a process that removes many probes: this program again, with the
	// name RemoverName.
	HandOver bool

	spec     *ebpf.CollectionSpec
	options  Options
	programs map[string]*ebpf.Program
	// uses has the maps of each loaded program.
	uses map[string]map[string]*ebpf.Map
	// preloading are programs that are being loaded in the background, before they are attached.
	preloading map[string]*loading
	// iterators are attached iterators. They run only while they are read.
	iterators map[Iterator]*link.Iter
	grace     *gracePeriods
	symbols   *kernelSymbols // or nil
	user      *user
	// returns has the attach points for the returns of user functions. Another goroutine adds those
	// of new files.
	returns       map[returnKey]*exits
	returnsMu     sync.Mutex
	mu            sync.Mutex // Detach can be called by several goroutines, while another attaches in a new file
	links         []link.Link
	single        []link.Link // those of links that attach to one target each and can be handed over
	detached      bool
	missedReturns sync.Once // a notice was given: see noteMissedReturns
	hookless      bool      // there are no hooks to attach
	// missedCalls is the sum of MissedCalls over the links that are closed.
	missedCalls uint64
}

// Load sets the variables in spec, removes the code that their values rule out, creates the maps of the object
// and begins to load its programs. [Objects.Attach] waits for them.
//
// Returns ErrNotPermitted, ErrUnsupported and ErrNoBTF, but none of them if file descriptors or
// memory ran out.
func Load(spec *ebpf.CollectionSpec, o Options) (*Objects, error) {
	raiseLimit()
	o.PerfBuffer = o.PerfBuffer || o.Kernel.lacksRingBuffer(spec)
	if err := setConstants(spec, o); err != nil {
		return nil, err
	}
	known := o.constantsOf(spec)
	fold(spec, known, o.replaced())
	dropUnused(spec)
	o.Kernel.Prepare(spec)
	if err := setLookups(spec, o); err != nil {
		return nil, err
	}
	if err := o.Kernel.check(); err != nil {
		return nil, err
	}
	if len(o.Force) > 0 || o.Kernel.preemptsTracepoints() {
		if err := addLater(spec, &o); err != nil {
			return nil, err
		}
	}
	if err := setUp(spec, o); err != nil {
		return nil, err
	}
	if err := unchanged(spec, known); err != nil {
		return nil, err
	}
	optional, err := checkDescriptors(spec, o)
	if err != nil {
		return nil, err
	}
	grace, err := o.Early.takeGrace()
	if err != nil {
		return nil, err
	}
	coll, err := createUserMaps(spec, o.Early)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create maps: %w", Classify(err)), grace.Close())
	}
	objects := &Objects{
		Maps: coll.Maps, Variables: coll.Variables, OptionalDescriptors: optional, Tried: map[string][]Attempt{},
		spec: spec, options: o, programs: map[string]*ebpf.Program{}, uses: map[string]map[string]*ebpf.Map{}, preloading: map[string]*loading{},
		iterators: map[Iterator]*link.Iter{}, grace: grace, returns: map[returnKey]*exits{},
	}
	objects.user = newUser(objects)
	for name, m := range o.Maps {
		objects.Maps[name] = m
	}
	objects.preload()
	return objects, nil
}

// createUserMaps creates the maps of userMaps and the variables. It uses the early ring buffer if it is the
// one that the object needs.
func createUserMaps(spec *ebpf.CollectionSpec, early *Early) (*ebpf.Collection, error) {
	maps := userMaps(spec)
	events := maps["events"]
	if events == nil {
		early = nil
	}
	if early != nil {
		delete(maps, "events")
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: withoutTypes(maps), Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder,
	})
	if err != nil || early == nil {
		return coll, err
	}
	m := early.takeRing(events)
	if m == nil {
		if m, err = ebpf.NewMap(events); err != nil {
			coll.Close()
			return nil, err
		}
	}
	coll.Maps["events"] = m
	return coll, nil
}

// withoutTypes returns the maps without the types of their keys and values. The kernel does not need them for
// maps without locks and timers, and each of these maps would have its own BTF.
func withoutTypes(all map[string]*ebpf.MapSpec) map[string]*ebpf.MapSpec {
	out := make(map[string]*ebpf.MapSpec, len(all))
	for name, m := range all {
		m := *m
		m.Key, m.Value = nil, nil
		out[name] = &m
	}
	return out
}

// Nothing returns the objects of a run without programs and maps.
func Nothing() *Objects {
	o := &Objects{spec: &ebpf.CollectionSpec{}, Tried: map[string][]Attempt{}}
	o.user = newUser(o)
	return o
}

// userSpace is the tag of maps that user space reads or writes: USER_SPACE in map.bpf.h.
const userSpace = "user_space"

// userMaps returns the maps with the tag userSpace, and those that contain variables. Other maps
// are created with the first program that uses them, so that a variant that is not loaded uses no
// memory.
func userMaps(spec *ebpf.CollectionSpec) map[string]*ebpf.MapSpec {
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

// setConstants sets the variables whose values are known before the types of the kernel.
func setConstants(spec *ebpf.CollectionSpec, o Options) error {
	for name, val := range o.Variables {
		if err := setVariable(spec, name, val); err != nil {
			return fmt.Errorf("set variable %s: %w", name, err)
		}
	}
	if spec.Maps["events"] != nil && o.PerfBuffer {
		return setVariable(spec, "event_perf_buffer", true)
	}
	return nil
}

func setLookups(spec *ebpf.CollectionSpec, o Options) error {
	for name, lookup := range o.Lookups {
		val, err := lookup(o.Kernel)
		if err != nil {
			return err
		}
		if err := setVariable(spec, name, val); err != nil {
			return fmt.Errorf("set variable %s: %w", name, err)
		}
	}
	return nil
}

func setUp(spec *ebpf.CollectionSpec, o Options) error {
	for name, entries := range o.MapEntries {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = entries
		}
	}
	if err := o.Kernel.setTypeIDs(spec); err != nil {
		return err
	}
	preallocate(spec, o.Kernel)
	if err := describeMaps(spec, o.Maps); err != nil {
		return err
	}
	useMulti(spec, &o)
	if m := spec.Maps["events"]; m != nil && o.PerfBuffer {
		m.Type, m.KeySize, m.ValueSize, m.MaxEntries = ebpf.PerfEventArray, 4, 4, 0
	}
	return nil
}

// describeMaps changes the definitions of maps to those of the maps that replace them.
func describeMaps(spec *ebpf.CollectionSpec, replacements map[string]*ebpf.Map) error {
	for name, m := range replacements {
		s := spec.Maps[name]
		if s == nil {
			return fmt.Errorf("replace map %s: the object does not contain it", name)
		}
		s.Type, s.KeySize, s.ValueSize, s.MaxEntries, s.Flags = m.Type(), m.KeySize(), m.ValueSize(), m.MaxEntries(), m.Flags()
		s.Key, s.Value = nil, nil
	}
	return nil
}

// AttachedHooks lists the attached hooks with the sections of their programs, such as "open:
// tp_btf/sys_exit", and the prepared iterators.
func (o *Objects) AttachedHooks() []string {
	out := []string{}
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

// Has reports whether the hook was attached.
func (o *Objects) Has(hook string) bool {
	tried := o.Tried[hook]
	return len(tried) > 0 && tried[len(tried)-1].Err == nil
}

// Attached reports whether programs are attached: from Attach to Detach, also if the object has none.
func (o *Objects) Attached() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.links) > 0 || o.hookless && !o.detached
}

// Detach detaches all programs and waits until none of them runs any more. Counters, buffers and
// maps can still be read.
func (o *Objects) Detach() error {
	stopErr := o.user.stopFollowing()
	o.mu.Lock()
	defer o.mu.Unlock()
	settleErr := o.settle()
	if len(o.links) > 0 {
		settleErr = errors.Join(settleErr, o.setObserving(false))
	}
	for _, l := range o.links {
		o.missedCalls += missedCalls(l)
	}
	o.handOver()
	err := closeTogether(o.links)
	if len(o.links) > 0 {
		err = errors.Join(err, o.AwaitGracePeriod())
	}
	o.links, o.single, o.detached = nil, nil, true
	return errors.Join(stopErr, settleErr, err)
}

// Close detaches the programs and frees programs and maps.
func (o *Objects) Close() error {
	o.closePreloaded()
	errs := []error{o.Detach(), closeAll(slices.Collect(maps.Values(o.iterators)))}
	for _, p := range o.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range o.Maps {
		errs = append(errs, m.Close())
	}
	errs = append(errs, o.grace.Close())
	o.grace = nil
	if o.symbols != nil {
		errs = append(errs, o.symbols.Close())
		o.symbols = nil
	}
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
