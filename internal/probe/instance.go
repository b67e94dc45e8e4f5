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

// forTarget is between the name of a program and the numbers of the targets that it is for.
const forTarget = "@"

// fewTargets is how many targets are worth a trampoline each, which makes a call cheaper
// but takes the kernel milliseconds to make.
const fewTargets = 8

// refusal is a target that a variant could not have.
type refusal struct {
	numbered
	err error
}

func refuse(targets []numbered, err error) []refusal {
	out := make([]refusal, len(targets))
	for i, t := range targets {
		out[i] = refusal{t, err}
	}
	return out
}

// attachInstance attaches an instance's targets, each by the first variant that it can be
// had by.
func (o *Objects) attachInstance(h Hook, in *Instance) error {
	rest, unsafe := o.splitUnsafe(h, in.numbered())
	if len(unsafe) > 0 && (!in.Some || len(rest) == 0) {
		return fmt.Errorf("attach to %s: %w", unsafe[0].Name, unsafe[0].err)
	}
	for _, r := range unsafe {
		o.Refused = append(o.Refused, Refusal{r.Name, r.err})
	}
	all := len(rest)
	var refused []refusal
	for _, v := range in.variants(h) {
		refused = o.attachTargets(v, in, rest)
		a := Attempt{Variant: v}
		for _, t := range without(rest, refused) {
			a.Targets = append(a.Targets, t.Name)
		}
		if len(refused) == len(rest) {
			a.Err = refused[0].err
		}
		o.Tried[h.Name] = append(o.Tried[h.Name], a)
		if rest = rest[:0]; len(refused) == 0 {
			return nil
		}
		for _, r := range refused {
			rest = append(rest, r.numbered)
		}
	}
	if !in.Some || len(rest) == all {
		return in.failed(rest, &HookError{h.Name, o.Tried[h.Name]})
	}
	for _, r := range refused {
		o.Refused = append(o.Refused, Refusal{r.Name, r.err})
	}
	return nil
}

// failed says which of the targets no variant could attach to. Where that is so of all that
// a pattern stands for, it names none of them, as the user did not.
func (in *Instance) failed(rest []numbered, err error) error {
	if in.Some && len(in.Targets) > 1 {
		return fmt.Errorf("attach to any of %d targets: %w", len(in.Targets), err)
	}
	return fmt.Errorf("attach to %s: %w", rest[0].Name, err)
}

func (in *Instance) numbered() []numbered {
	out := make([]numbered, len(in.Targets))
	for i, t := range in.Targets {
		out[i] = numbered{Target: t, id: in.First + uint64(i)}
	}
	return out
}

// variants are the ways to the hook, those for many targets first if there are many.
func (in *Instance) variants(h Hook) []Variant {
	if len(in.Targets) <= fewTargets {
		return h.Variants
	}
	all := slices.Clone(h.Variants)
	slices.SortStableFunc(all, func(a, b Variant) int {
		switch {
		case a.Kind == multi && b.Kind != multi:
			return -1
		case a.Kind != multi && b.Kind == multi:
			return 1
		}
		return 0
	})
	return all
}

// attachTargets attaches the programs of a variant to all targets that it can be had by.
func (o *Objects) attachTargets(v Variant, in *Instance, targets []numbered) []refusal {
	if isMulti(o.spec.Programs[v.Programs[0]]) {
		return o.attachAll(v, in, targets)
	}
	var refused []refusal
	for i, t := range targets {
		err := o.attachOne(v, in, t)
		switch {
		case isDenied(err):
			return append(refused, refuse(targets[i:], err)...)
		case err != nil:
			refused = append(refused, refusal{t, err})
		}
	}
	return refused
}

// attachAll attaches each program of a variant to all targets at once. Programs for returns
// come first, so that the return of a call whose entry is observed is observed too.
func (o *Objects) attachAll(v Variant, in *Instance, targets []numbered) (refused []refusal) {
	for _, name := range o.returnsFirst(v.Programs) {
		failed := o.attachProgramToAll(name, in, targets)
		refused = append(refused, failed...)
		targets = without(targets, failed)
	}
	return refused
}

// attachProgramToAll attaches a program in all its forms. A target is attached in all forms that it
// needs, or in none.
func (o *Objects) attachProgramToAll(name string, in *Instance, targets []numbered) (refused []refusal) {
	var links []link.Link
	for i, p := range o.placements(name, targets) {
		prog, err := o.sharedProgram(name, p.form, in)
		var failed []refusal
		if err != nil {
			failed = refuse(p.targets, err)
		}
		for _, part := range byFile(p.targets) {
			if err != nil {
				break
			}
			more, no := attachMulti(o.spec.Programs[name], prog, p.form, part)
			links, failed = append(links, more...), append(failed, no...)
		}
		if i > 0 && len(failed) > 0 {
			return refuse(targets, errors.Join(failed[0].err, closeTogether(links)))
		}
		refused = append(refused, failed...)
	}
	o.keep(links)
	return refused
}

func without(targets []numbered, failed []refusal) []numbered {
	return slices.DeleteFunc(slices.Clone(targets), func(t numbered) bool {
		return slices.ContainsFunc(failed, func(r refusal) bool { return r.id == t.id })
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
func (o *Objects) attachOne(v Variant, in *Instance, t numbered) error {
	var links []link.Link
	for _, name := range o.returnsFirst(v.Programs) {
		for _, p := range o.placements(name, []numbered{t}) {
			more, err := o.attachProgramAt(name, p.form, in, p.targets[0])
			links = append(links, more...)
			if err != nil {
				return errors.Join(err, closeAll(links))
			}
		}
	}
	o.keep(links)
	return nil
}

// attachProgramAt uses one program for all targets if the kernel passes cookies, else a copy for
// each.
func (o *Objects) attachProgramAt(name string, f form, in *Instance, t numbered) ([]link.Link, error) {
	spec := o.spec.Programs[name]
	if canShare(spec) && len(in.Targets) > 1 && !in.alone {
		prog, err := o.sharedProgram(name, f, in)
		if err == nil {
			return attachEach(spec, prog, f, t)
		}
		in.alone = true
	}
	spec = spec.Copy()
	spec.AttachTo = t.Name
	if _, event, ok := strings.Cut(t.Name, "/"); ok {
		spec.AttachTo = event
	}
	prog, err := o.instanceProgram(fmt.Sprintf("%s%s%d", formName(name, f), forTarget, t.id), in, withForm(spec, f), constantTarget(t.id))
	if err != nil {
		return nil, err
	}
	links, err := attachEach(spec, prog, f, numbered{Target: t.Target, at: t.at})
	if err != nil {
		return links, fmt.Errorf("attach %s: %w", spec.SectionName, err)
	}
	return links, nil
}

// attachEach attaches a program to each attach point of a target.
func attachEach(spec *ebpf.ProgramSpec, prog *ebpf.Program, f form, t numbered) (links []link.Link, err error) {
	for _, at := range t.points() {
		t.Offset = at
		l, err := attachAt(spec, prog, f, t)
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	return links, nil
}

// sharedProgram loads the program for all targets of the instance.
func (o *Objects) sharedProgram(name string, f form, in *Instance) (*ebpf.Program, error) {
	if !haveCookies() {
		return nil, fmt.Errorf("load %s for several targets: %w", o.spec.Programs[name].SectionName, ebpf.ErrNotSupported)
	}
	key := fmt.Sprintf("%s%s%d+%d", formName(name, f), forTarget, in.First, len(in.Targets))
	return o.instanceProgram(key, in, withForm(o.spec.Programs[name], f), cookieTarget())
}

// instanceProgram loads a program with the instance's own functions in it. It is sleepable if the
// instance has functions for that and the kernel supports it: for uprobes since 6.0 (8c7dcb84e3b7).
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

// programWith loads a program with the given functions in it.
func (o *Objects) programWith(
	key string, functions map[string]asm.Instructions, spec *ebpf.ProgramSpec, target asm.Instructions,
) (*ebpf.Program, error) {
	spec = spec.Copy()
	for name, body := range functions {
		var err error
		if isMark(key) {
			break // it evaluates no expressions
		}
		if spec.Instructions, err = replaceFunction(spec.Instructions, name, body); err != nil {
			return nil, err
		}
	}
	// A program that does not ask for its target has no such function.
	if changed, err := replaceFunction(spec.Instructions, targetFunction, target); err == nil {
		spec.Instructions = changed
	}
	return o.load(key, spec)
}
