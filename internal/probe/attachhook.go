package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Attach attaches the first variant of each hook that this kernel supports, in the order of the names of hooks,
// because programs depend on it: if the hook for ends of operations comes first, the end of each observed begin is
// observed. After an error, hooks that were attached before it stay attached until Close.
//
// Programs in user space are attached in all files that are mapped, and until Detach in files that
// are mapped later.
//
// Returns a HookError, which is ErrNotPermitted or ErrUnsupported, ErrNoVariant and
// ErrNoAttachPoint, but none of them if file descriptors or memory ran out. Returns ErrExited if the
// reason is that the processes of the run have exited.
func (o *Objects) Attach() error {
	hooks, err := o.Hooks()
	if err != nil {
		return err
	}
	if err := o.user.find(); err != nil {
		return err
	}
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
			return o.user.cause(err)
		}
	}
	if !attached {
		return o.user.cause(missed)
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

// try attaches the first variant that works, and reports whether one does.
func (o *Objects) try(h Hook) (ok bool, err error) {
	ok, err = o.tryVariants(h, h.Variants)
	if ok || err != nil {
		return ok, err
	}
	later, err := o.laterVariants(h)
	if err != nil {
		return false, err
	}
	return o.tryVariants(h, later)
}

func (o *Objects) tryVariants(h Hook, variants []Variant) (ok bool, err error) {
	for _, v := range variants {
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

// attachVariant loads and attaches all programs of a variant, in their order in it. After an error none of them is
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
		l, err = newSampler(prog, hook, o.options.Sampling, o.Guarded)
	} else {
		l, err = o.attach(spec, prog)
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
