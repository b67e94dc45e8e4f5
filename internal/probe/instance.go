package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// targetSeparator is between the name of a program and the IDs of its targets.
const targetSeparator = "@"

// maxTrampolines is the maximum number of targets for which trampolines are preferred over multi
// links: a trampoline makes each call cheaper, but the kernel takes milliseconds to create it.
const maxTrampolines = 8

// targetError is a target that a variant failed to attach to.
type targetError struct {
	targetWithID
	err error
}

// failAll returns err for each of the targets.
func failAll(targets []targetWithID, err error) []targetError {
	out := make([]targetError, len(targets))
	for i, t := range targets {
		out[i] = targetError{t, err}
	}
	return out
}

// attachInstance attaches the targets of an instance, each by the first variant that works for it.
func (o *Objects) attachInstance(h Hook, in *Instance) error {
	rest, unsafe := o.splitUnsafe(h, in.withIDs())
	if len(unsafe) > 0 && (!in.AllowPartial || len(rest) == 0) {
		return fmt.Errorf("attach to %s: %w", unsafe[0].Name, unsafe[0].err)
	}
	for _, t := range unsafe {
		o.FailedTargets = append(o.FailedTargets, FailedTarget{t.Name, t.err})
	}
	all := len(rest)
	var failed []targetError
	for _, v := range in.variants(h, o.multiMissesReturns(h)) {
		failed = o.attachTargets(v, in, rest)
		a := Attempt{Variant: v}
		for _, t := range without(rest, failed) {
			a.Targets = append(a.Targets, t.Name)
		}
		if len(failed) == len(rest) {
			a.Err = failed[0].err
		}
		o.Tried[h.Name] = append(o.Tried[h.Name], a)
		if rest = rest[:0]; len(failed) == 0 {
			return nil
		}
		for _, t := range failed {
			t.offsets = nil // those of returns, if the program for returns failed
			rest = append(rest, t.targetWithID)
		}
	}
	if !in.AllowPartial || len(rest) == all {
		return in.attachError(rest, &HookError{h.Name, o.Tried[h.Name]})
	}
	for _, t := range failed {
		o.FailedTargets = append(o.FailedTargets, FailedTarget{t.Name, t.err})
	}
	return nil
}

// attachError returns the error for targets that no variant could attach to. If the targets are the
// matches of a pattern, it does not name any of them, because the user did not.
func (in *Instance) attachError(rest []targetWithID, err error) error {
	if in.AllowPartial && len(in.Targets) > 1 {
		return fmt.Errorf("attach to any of %d targets: %w", len(in.Targets), err)
	}
	return fmt.Errorf("attach to %s: %w", rest[0].Name, err)
}

func (in *Instance) withIDs() []targetWithID {
	out := make([]targetWithID, len(in.Targets))
	for i, t := range in.Targets {
		out[i] = targetWithID{Target: t, id: in.First + uint64(i)}
	}
	return out
}

// multiMissesReturns reports whether the hook has returns of kernel functions, of which multi misses some:
// before Linux 6.14 (4346ba160409), all functions of a link together can have two calls in progress for each
// function and CPU.
func (o *Objects) multiMissesReturns(h Hook) bool {
	return isBefore(6, 14) && slices.ContainsFunc(h.Variants, func(v Variant) bool {
		return slices.ContainsFunc(v.Programs, func(name string) bool { return isKernelReturn(o.spec.Programs[name]) })
	})
}

// isKernelReturn reports whether the program is a kprobe at the return of functions.
func isKernelReturn(spec *ebpf.ProgramSpec) bool {
	return spec.Type == ebpf.Kprobe && !isUser(spec) && isReturn(spec)
}

// variants returns the variants of the hook in the order in which they are tried: with many targets, multi
// comes first, and with few it comes last if it misses returns.
func (in *Instance) variants(h Hook, multiMissesReturns bool) []Variant {
	var rank int // of multi, compared with the others
	switch {
	case len(in.Targets) > maxTrampolines:
		rank = -1
	case multiMissesReturns:
		rank = 1
	}
	var first, others []Variant
	for _, v := range h.Variants {
		if v.Kind == multi && rank < 0 || v.Kind != multi && rank > 0 {
			first = append(first, v)
		} else {
			others = append(others, v)
		}
	}
	return append(first, others...)
}

// attachTargets attaches the programs of a variant to the targets, and returns those that failed.
// After a permission error it does not try further targets.
func (o *Objects) attachTargets(v Variant, in *Instance, targets []targetWithID) []targetError {
	if isMulti(o.spec.Programs[v.Programs[0]]) {
		return o.attachAll(v, in, targets)
	}
	var failed []targetError
	for i, t := range targets {
		if o.isStopped() {
			return append(failed, failAll(targets[i:], ErrStopped)...)
		}
		err := o.attachOne(v, in, t)
		switch {
		case isDenied(err):
			return append(failed, failAll(targets[i:], err)...)
		case err != nil:
			failed = append(failed, targetError{t, err})
		}
	}
	return failed
}

// attachAll attaches each program of a variant to all targets at once. Programs for returns
// come first, so that the return of a call whose entry is observed is observed too.
func (o *Objects) attachAll(v Variant, in *Instance, targets []targetWithID) (failed []targetError) {
	for _, name := range o.returnsFirst(v.Programs) {
		more := o.attachProgramToAll(name, in, targets)
		failed = append(failed, more...)
		targets = without(targets, more)
	}
	return failed
}

// attachProgramToAll attaches a program in all its forms. A target is attached in all forms that it
// needs, or in none.
func (o *Objects) attachProgramToAll(name string, in *Instance, targets []targetWithID) (failed []targetError) {
	if isKernelReturn(o.spec.Programs[name]) && isBefore(6, 7) {
		o.noteMissedReturns(errors.New("the kernel reports those of two calls in progress for each function and CPU"))
	}
	var links []link.Link
	for i, p := range o.placements(name, targets) {
		prog, err := o.sharedProgram(name, p.form, in)
		var formFailed []targetError
		if err != nil {
			formFailed = failAll(p.targets, err)
		}
		for _, part := range byDoubt(byFile(p.targets)) {
			if err != nil {
				break
			}
			partLinks, partFailed := o.attachMulti(o.spec.Programs[name], prog, p.form, part)
			links, formFailed = append(links, partLinks...), append(formFailed, partFailed...)
		}
		if i > 0 && len(formFailed) > 0 {
			return failAll(targets, errors.Join(formFailed[0].err, closeTogether(links)))
		}
		failed = append(failed, formFailed...)
	}
	o.keep(links)
	return failed
}

func without(targets []targetWithID, failed []targetError) []targetWithID {
	return slices.DeleteFunc(slices.Clone(targets), func(t targetWithID) bool {
		return slices.ContainsFunc(failed, func(f targetError) bool { return f.id == t.id })
	})
}

func (o *Objects) returnsFirst(programs []string) []string {
	out := slices.Clone(programs)
	slices.SortStableFunc(out, func(a, b string) int {
		switch ra, rb := isReturn(o.spec.Programs[a]), isReturn(o.spec.Programs[b]); {
		case ra && !rb:
			return -1
		case !ra && rb:
			return 1
		}
		return 0
	})
	return out
}

// attachOne attaches all programs of a variant to one target, or none of them.
func (o *Objects) attachOne(v Variant, in *Instance, t targetWithID) error {
	var links []link.Link
	for _, name := range o.returnsFirst(v.Programs) {
		for _, p := range o.placements(name, []targetWithID{t}) {
			more, err := o.attachProgramAt(name, p.form, in, p.targets[0])
			links = append(links, more...)
			if err != nil {
				return errors.Join(err, closeAll(links))
			}
		}
	}
	o.keep(links)
	o.addSingle(v, t, links)
	return nil
}

// attachProgramAt uses one program for all targets if the kernel supports attach cookies, otherwise
// it loads the program for each target.
func (o *Objects) attachProgramAt(name string, f form, in *Instance, t targetWithID) ([]link.Link, error) {
	spec := o.spec.Programs[name]
	if canShare(spec) && len(in.Targets) > 1 && !in.noCookies {
		prog, err := o.sharedProgram(name, f, in)
		if err == nil {
			return o.attachEach(spec, prog, f, t)
		}
		in.noCookies = true
	}
	spec = spec.Copy()
	spec.AttachTo = t.Name
	if _, event, ok := strings.Cut(t.Name, "/"); ok {
		spec.AttachTo = event
	}
	prog, err := o.instanceProgram(fmt.Sprintf("%s%s%d", formName(name, f), targetSeparator, t.id), in, withForm(spec, f), constantTarget(t.id))
	if err != nil {
		return nil, err
	}
	links, err := o.attachEach(spec, prog, f, targetWithID{Target: t.Target, offsets: t.offsets})
	if err != nil {
		return links, fmt.Errorf("attach %s: %w", spec.SectionName, err)
	}
	return links, nil
}

// attachEach attaches a program to each attach point of a target.
func (o *Objects) attachEach(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, t targetWithID) (links []link.Link, err error) {
	for _, offset := range t.attachOffsets() {
		t.Offset = offset
		l, err := o.attachAt(spec, prog, f, t)
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	return links, nil
}

// sharedProgram loads the program that all targets of the instance share. It requires attach
// cookies.
func (o *Objects) sharedProgram(name string, f form, in *Instance) (*ebpf.Program, error) {
	if !haveCookies() {
		return nil, fmt.Errorf("load %s for several targets: %w", o.spec.Programs[name].SectionName, ebpf.ErrNotSupported)
	}
	key := fmt.Sprintf("%s%s%d+%d", formName(name, f), targetSeparator, in.First, len(in.Targets))
	return o.instanceProgram(key, in, withForm(o.spec.Programs[name], f), cookieTarget())
}

// instanceProgram loads a program with the functions of the instance. The program is sleepable if
// the instance has functions for that and the kernel supports it: for uprobes since Linux 6.0
// (8c7dcb84e3b7).
func (o *Objects) instanceProgram(key string, in *Instance, spec *ebpf.ProgramSpec, target asm.Instructions) (*ebpf.Program, error) {
	if prog := o.programs[key]; prog != nil {
		return prog, nil
	}
	if in.Sleepable != nil && isUser(spec) {
		sleepable := spec.Copy()
		sleepable.Flags |= unix.BPF_F_SLEEPABLE
		prog, err := o.programWith(key, in.Sleepable, sleepable, target)
		if err == nil || isDenied(err) {
			return prog, err
		}
	}
	return o.programWith(key, in.Functions, spec, target)
}

// programWith loads a program with these bodies for its functions.
func (o *Objects) programWith(
	key string, functions map[string]asm.Instructions, spec *ebpf.ProgramSpec, target asm.Instructions,
) (*ebpf.Program, error) {
	spec = spec.Copy()
	var missing error
	replaced := 0
	for name, body := range functions {
		changed, err := replaceFunction(spec.Instructions, name, body)
		if err != nil {
			missing = err // the program for the entry of calls has another function than that for the return
			continue
		}
		spec.Instructions = changed
		replaced++
	}
	// A mark only notes calls (mark.bpf.h) and has none of these functions.
	if replaced == 0 && missing != nil && !isMark(key) {
		return nil, missing
	}
	// A program that does not use its target has no such function.
	if changed, err := replaceFunction(spec.Instructions, targetFunction, target); err == nil {
		spec.Instructions = changed
	}
	return o.load(key, spec)
}
