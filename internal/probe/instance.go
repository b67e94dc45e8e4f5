package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
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
	var refused []refusal
	rest := in.numbered()
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
	if !in.Some || len(rest) == len(in.Targets) {
		return fmt.Errorf("attach to %s: %w", rest[0].Name, &HookError{h.Name, o.Tried[h.Name]})
	}
	for _, r := range refused {
		o.Refused = append(o.Refused, Refusal{r.Name, r.err})
	}
	return nil
}

func (in *Instance) numbered() []numbered {
	out := make([]numbered, len(in.Targets))
	for i, t := range in.Targets {
		out[i] = numbered{t, in.First + uint64(i)}
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

// attachAll attaches each program of a variant to all targets at once. Returns come
// first: who sees a function begin can rely on seeing its end.
func (o *Objects) attachAll(v Variant, in *Instance, targets []numbered) (refused []refusal) {
	for _, name := range o.returnsFirst(v.Programs) {
		spec := o.spec.Programs[name]
		prog, err := o.sharedProgram(name, in)
		if err != nil {
			return append(refused, refuse(targets, err)...)
		}
		var had []numbered
		for _, part := range byFile(targets) {
			links, failed := attachMulti(spec, prog, part)
			o.keep(links)
			refused = append(refused, failed...)
			had = append(had, without(part, failed)...)
		}
		targets = had
	}
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
		l, err := o.attachProgramAt(name, in, t)
		if err != nil {
			return errors.Join(err, closeAll(links))
		}
		links = append(links, l)
	}
	o.keep(links)
	return nil
}

// attachProgramAt takes one program for all targets where the kernel can tell it which one
// it was called for, else a copy for each.
func (o *Objects) attachProgramAt(name string, in *Instance, t numbered) (link.Link, error) {
	spec := o.spec.Programs[name]
	if canShare(spec) && len(in.Targets) > 1 && !in.alone {
		prog, err := o.sharedProgram(name, in)
		if err == nil {
			return attachAt(spec, prog, t)
		}
		in.alone = true
	}
	spec = spec.Copy()
	spec.AttachTo = t.Name
	if _, event, ok := strings.Cut(t.Name, "/"); ok {
		spec.AttachTo = event
	}
	prog, err := o.instanceProgram(fmt.Sprintf("%s%s%d", name, forTarget, t.id), in, spec, constantTarget(t.id))
	if err != nil {
		return nil, err
	}
	l, err := attachAt(spec, prog, numbered{t.Target, 0})
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", spec.SectionName, err)
	}
	return l, nil
}

// sharedProgram loads the program that is for all targets of the instance.
func (o *Objects) sharedProgram(name string, in *Instance) (*ebpf.Program, error) {
	if !haveCookies() {
		return nil, fmt.Errorf("load %s for several targets: %w", o.spec.Programs[name].SectionName, ebpf.ErrNotSupported)
	}
	key := fmt.Sprintf("%s%s%d+%d", name, forTarget, in.First, len(in.Targets))
	return o.instanceProgram(key, in, o.spec.Programs[name], cookieTarget())
}

// instanceProgram loads a program with the instance's own functions in it.
func (o *Objects) instanceProgram(key string, in *Instance, spec *ebpf.ProgramSpec, target asm.Instructions) (*ebpf.Program, error) {
	if prog := o.programs[key]; prog != nil {
		return prog, nil
	}
	spec = spec.Copy()
	for name, body := range in.Functions {
		var err error
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
