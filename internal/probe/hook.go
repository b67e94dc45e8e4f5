// Package probe gets the programs of a BPF object into this kernel: it knows which
// programs are ways to the same hook, tries them in order, and says why a better
// one was not to be had. What a kernel can do is told by trying, never by its
// version, as distributions backport.
//
// Programs are named HOOK__KIND, or HOOK__KIND__PART where a variant is made of
// several programs that go together. A program without "__" is a hook of its own
// with one variant.
//
// A kernel leaves a program out where it is running on the CPU already: softirqs come
// between, and where programs can be preempted (trampolines, and tracepoints from 7.0
// on) other tasks. A PROGRAM__again is a copy of PROGRAM for that case, made such that
// the second of the two to see an event does nothing.
package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Hook is one thing that a tool listens to, and the ways to it, best first.
type Hook struct {
	Name     string
	Variants []Variant
}

// Variant is one way to a hook: all of its programs must load and attach.
type Variant struct {
	Kind     string
	Programs []string
	// Where are the programs' sections, as "tp_btf/sys_exit", a copy's left out; of those
	// in user space only the files: "uprobe/libc".
	Where []string
}

// String is the kind and where it attaches.
func (v Variant) String() string { return strings.Join(v.Where, " + ") }

// again ends the name of a copy.
const again = "__again"

// order is how good the kinds are: what they cost and what they depend on. Kinds
// that are not here come after these, in the order of their names.
var order = []string{"fentry", "btf", "raw", "tp", multi, "kprobe", "uprobe", "usdt"}

// multi is the kind of programs that one link attaches to many targets.
const multi = "multi"

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

// Hooks sorts the programs of an object, iterators left out: these are run, not
// attached.
func Hooks(spec *ebpf.CollectionSpec) []Hook {
	hooks := map[string]map[string]*Variant{}
	for name, prog := range spec.Programs {
		if prog.AttachType == ebpf.AttachTraceIter {
			continue
		}
		hook, kind := split(name)
		if hooks[hook] == nil {
			hooks[hook] = map[string]*Variant{}
		}
		v := hooks[hook][kind]
		if v == nil {
			v = &Variant{Kind: kind}
			hooks[hook][kind] = v
		}
		v.Programs = append(v.Programs, name)
	}
	var out []Hook
	for name, variants := range hooks {
		out = append(out, newHook(spec, name, variants))
	}
	slices.SortFunc(out, func(a, b Hook) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func split(program string) (hook, kind string) {
	parts := strings.SplitN(program, "__", 3)
	if len(parts) == 1 {
		return program, "only"
	}
	return parts[0], parts[1]
}

func newHook(spec *ebpf.CollectionSpec, name string, variants map[string]*Variant) Hook {
	h := Hook{Name: name}
	for _, v := range variants {
		slices.SortFunc(v.Programs, func(a, b string) int {
			return cmp.Or(cmp.Compare(stage(spec.Programs[a]), stage(spec.Programs[b])), cmp.Compare(a, b))
		})
		for _, prog := range v.Programs {
			if isMark(prog) {
				continue
			}
			v.Where = append(v.Where, whereOf(spec.Programs[prog].SectionName))
		}
		v.Where = slices.Compact(v.Where)
		h.Variants = append(h.Variants, *v)
	}
	slices.SortFunc(h.Variants, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Kind, b.Kind))
	})
	return h
}

// stage puts the programs for returns in user space first: who sees a call begin sees it
// end then.
func stage(prog *ebpf.ProgramSpec) int {
	if strings.HasPrefix(prog.SectionName, "uretprobe/") {
		return 0
	}
	return 1
}

// force leaves a hook one variant, from "HOOK=KIND".
func force(hooks []Hook, words []string) error {
	for _, word := range words {
		name, kind, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(hooks, func(h Hook) bool { return h.Name == name })
		if i < 0 {
			return fmt.Errorf("hook %q: %w (there are: %s)", name, ErrNoVariant, names(hooks))
		}
		j := slices.IndexFunc(hooks[i].Variants, func(v Variant) bool { return v.Kind == kind })
		if j < 0 {
			return fmt.Errorf("hook %q of kind %q: %w (there are: %s)", name, kind, ErrNoVariant, kinds(hooks[i]))
		}
		hooks[i].Variants = hooks[i].Variants[j : j+1]
	}
	return nil
}

func names(hooks []Hook) string {
	var all []string
	for _, h := range hooks {
		all = append(all, h.Name)
	}
	return strings.Join(all, ", ")
}

func kinds(h Hook) string {
	var all []string
	for _, v := range h.Variants {
		all = append(all, v.Kind)
	}
	return strings.Join(all, ", ")
}
