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

// Options defines how an object is loaded and attached.
type Options struct {
	// Variables are constants of the programs, by name.
	Variables map[string]any
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
	user      *user
	// returns has the attach points for the returns of user functions. Another goroutine adds those
	// of new files.
	returns   map[returnKey]*exits
	returnsMu sync.Mutex
	mu        sync.Mutex // Detach can be called by several goroutines, while another attaches in a new file
	links     []link.Link
	single    []link.Link // those of links that attach to one target each and can be handed over
	detached  bool
	hookless  bool // there are no hooks to attach
	// missedCalls is the sum of MissedCalls over the links that are closed.
	missedCalls uint64
}

// Load sets the variables in spec and creates the maps of the object. [Objects.Attach] loads the
// programs.
//
// Returns ErrNotPermitted, ErrUnsupported and ErrNoBTF, but none of them if file descriptors or
// memory ran out.
func Load(spec *ebpf.CollectionSpec, o Options) (*Objects, error) {
	// Kernels before 5.11 account BPF memory as locked memory. If the limit cannot be raised and
	// is too low, creating the maps fails.
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
	optional, err := checkDescriptors(spec, o)
	if err != nil {
		return nil, err
	}
	grace, err := newGracePeriods()
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: userMaps(spec), Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder,
	})
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
	return objects, nil
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
	if err := describeMaps(spec, o.Maps); err != nil {
		return err
	}
	useMulti(spec, &o)
	if m := spec.Maps["events"]; m != nil && o.PerfBuffer {
		m.Type, m.KeySize, m.ValueSize, m.MaxEntries = ebpf.PerfEventArray, 4, 4, 0
		return setVariable(spec, "event_perf_buffer", true)
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

// Attach attaches the first variant of each hook that this kernel supports. After an error, hooks
// that were attached before it stay attached until Close.
//
// Programs in user space are attached in all files that are mapped, and until Detach in files that
// are mapped later.
//
// Returns a HookError, which is ErrNotPermitted or ErrUnsupported, ErrNoVariant and
// ErrNoAttachPoint, but none of them if file descriptors or memory ran out.
func (o *Objects) Attach() error {
	hooks, err := o.Hooks()
	if err != nil {
		return err
	}
	if err := o.user.find(); err != nil {
		return err
	}
	o.preload(hooks)
	defer o.closePreloaded()
	var missed error // of an optional hook: returned if no hook could be attached
	o.hookless = len(hooks) == 0
	attached := o.hookless
	hooks, standIns := o.splitStandIns(hooks)
	for _, h := range hooks {
		err := o.attachOrStandIn(h, standIns)
		var missing *HookError
		switch {
		case o.isStopped():
			return ErrStopped
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
	if err := errors.Join(o.prepare(o.options.Begin), o.prepare(o.options.Settle)); err != nil {
		return err
	}
	if err := o.runPrepared(o.options.Begin); err != nil {
		return fmt.Errorf("note what exists at the start: %w", err)
	}
	if err := o.closeUnused(); err != nil {
		return fmt.Errorf("close maps: %w", err)
	}
	if err := o.setObserving(true); err != nil {
		return err
	}
	return o.user.startFollowing()
}

// setObserving tells the programs whether all of them are attached (observing.bpf.h).
func (o *Objects) setObserving(on bool) error {
	v := o.Variables["observing"]
	if v == nil {
		return nil
	}
	if err := v.Set(on); err != nil {
		return fmt.Errorf("set variable observing: %w", err)
	}
	return nil
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

// Hooks returns the hooks to attach, with the variants that Options.Force allows. Hooks whose
// programs name no target are included if an instance has targets for them.
func (o *Objects) Hooks() ([]Hook, error) {
	hooks := Hooks(o.spec)
	if kernel := o.options.Kernel; kernel != nil && kernel.preemptsTracepoints() {
		preferUnpreempted(hooks)
	}
	if err := force(hooks, o.options.Force); err != nil {
		return nil, err
	}
	hooks = slices.DeleteFunc(hooks, func(h Hook) bool {
		isWithoutTarget := namesNoTarget(o.spec.Programs[h.Variants[0].Programs[0]]) && len(o.instances(h)) == 0
		return isWithoutTarget || slices.Contains(o.options.Without, h.Name)
	})
	return dropUnforced(hooks, o.options.StandIns, o.options.Force), nil
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

// keep stores links until Detach. After Detach it closes them.
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

// attachVariant loads and attaches all programs of a variant. After an error none of them is
// attached or loaded.
func (o *Objects) attachVariant(v Variant) ([]link.Link, error) {
	var links []link.Link
	for _, name := range v.Programs {
		more, err := o.attachProgram(name)
		if err != nil {
			o.unload(v, links)
			return nil, err
		}
		links = append(links, more...)
	}
	return links, nil
}

func (o *Objects) attachProgram(name string) ([]link.Link, error) {
	if p, ok := parseUserSection(o.spec.Programs[name].SectionName); ok {
		return o.user.attach(name, p)
	}
	prog, err := o.Program(name)
	if err != nil {
		return nil, err
	}
	var l link.Link
	if spec := o.spec.Programs[name]; spec.Type == ebpf.PerfEvent {
		hook, _, _ := strings.Cut(name, "__")
		l, err = newSampler(prog, hook, o.options.Sampling)
	} else {
		l, err = attach(spec, prog)
	}
	if err != nil {
		return nil, err
	}
	return []link.Link{l}, nil
}

// unload detaches and unloads a variant. Its maps are kept, because other variants can share them.
func (o *Objects) unload(v Variant, links []link.Link) {
	closeTogether(links)
	o.user.removePrograms(v.Programs)
	for name, prog := range o.programs {
		base, _, _ := strings.Cut(name, cookieSeparator)
		if base, _, _ = strings.Cut(base, formSeparator); slices.Contains(v.Programs, base) {
			prog.Close()
			delete(o.programs, name)
		}
	}
}

// Explain attaches and detaches every variant of every hook, loads every iterator, and returns the
// results by hook or by name of the iterator.
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
			o.clearReturns()
			err := o.tryVariant(h, v)
			if o.isStopped() {
				return nil, ErrStopped
			}
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

// ErrStopped is returned if Objects.Stop was closed.
var ErrStopped = errors.New("stopped")

func (o *Objects) isStopped() bool {
	select {
	case <-o.Stop:
		return true
	default:
		return false
	}
}

// samplesMax is the maximum number of targets that tryVariant attaches a variant to one by one: each
// takes up to 0.2 s. If some targets may fail, it tries others until one works.
const samplesMax = 4

// multiSamplesMax is the same for the functions of a pattern that are attached together: each changes
// the memory of all processes that have mapped the file.
const multiSamplesMax = 32

// tryTargets attaches a variant to some of the targets, until it is clear whether it works, and
// returns those that failed.
func (o *Objects) tryTargets(v Variant, in *Instance, targets []targetWithID) []targetError {
	multi := isMulti(o.spec.Programs[v.Programs[0]])
	if multi && in.AllowPartial && len(targets) > multiSamplesMax {
		if failed := o.attachTargets(v, in, targets[:multiSamplesMax]); len(failed) < multiSamplesMax {
			return failed
		}
	}
	if multi || len(targets) <= samplesMax {
		return o.attachTargets(v, in, targets)
	}
	var failed []targetError
	for i, t := range targets {
		more := o.attachTargets(v, in, []targetWithID{t})
		failed = append(failed, more...)
		switch {
		case len(more) > 0 && isDenied(more[0].err):
			return append(failed, failAll(targets[i+1:], more[0].err)...)
		case len(more) == 0 && in.AllowPartial, !in.AllowPartial && i == samplesMax-1, o.isStopped():
			return failed
		}
	}
	return failed
}

// tryVariant attaches and detaches a variant. Programs that are attached to each target on its own
// are attached to a few targets only.
func (o *Objects) tryVariant(h Hook, v Variant) error {
	instances := o.instances(h)
	if len(instances) == 0 {
		links, err := o.attachVariant(v)
		o.unload(v, links)
		return err
	}
	for _, in := range instances {
		targets, failed := o.splitUnsafe(h, in.withIDs())
		failed = append(failed, o.tryTargets(v, in, targets)...)
		if len(failed) > 0 && (!in.AllowPartial || len(failed) == len(in.Targets)) {
			return failed[0].err
		}
	}
	return o.Detach()
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
