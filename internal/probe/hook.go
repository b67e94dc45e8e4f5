// Package probe loads the programs of a BPF object and attaches them to their hooks. A hook can
// have several variants, one per attach type. They are tried in a fixed order until one loads and
// attaches; the errors of the others are kept. Kernel versions do not decide that, because
// distributions backport features.
//
// Programs are named HOOK__KIND, or HOOK__KIND__PART if a variant consists of several programs. A
// program without "__" is a hook of its own with a single variant.
//
// The kernel skips a run of a program that is already running on the same CPU: in a softirq, and,
// where programs can be preempted (BPF trampolines, and tracepoints since 7.0), in another task.
// PROGRAM__again is a copy of PROGRAM that runs in this case. Both are attached; the second of them
// to see an event ignores it.
package probe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Hook is a place where the tool observes something, with its variants in the order in which they
// are tried.
type Hook struct {
	Name     string
	Variants []Variant
}

// Variant is one attach type of a hook. All of its programs must load and attach.
type Variant struct {
	Kind     string
	Programs []string
	// Where lists the sections of the programs without duplicates, such as "tp_btf/sys_exit".
	// For programs in user space it has only the files: "uprobe/libc".
	Where []string
}

// String returns the sections of the programs.
func (v Variant) String() string { return strings.Join(v.Where, " + ") }

// copySuffix ends the name of a copy that runs while the original program runs.
const copySuffix = "__again"

// order lists the kinds from the cheapest, and the one with the fewest requirements, to the worst.
// Kinds that are not listed follow in alphabetical order.
var order = []string{"fentry", "btf", "raw", "tp", multi, "kprobe", "uprobe", "usdt"}

// multi is the kind of programs that one link attaches to many targets.
const multi = "multi"

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

// Hooks returns the hooks of an object, sorted by name. Iterators are omitted: they are run, not
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
	for _, name := range slices.Sorted(maps.Keys(hooks)) {
		out = append(out, newHook(spec, name, hooks[name]))
	}
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
	byKind := slices.SortedFunc(maps.Values(variants), func(a, b *Variant) int {
		return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Kind, b.Kind))
	})
	for _, v := range byKind {
		slices.SortFunc(v.Programs, func(a, b string) int {
			return cmp.Or(cmp.Compare(stage(spec.Programs[a]), stage(spec.Programs[b])), cmp.Compare(a, b))
		})
		for _, prog := range v.Programs {
			if isMark(prog) {
				continue
			}
			v.Where = append(v.Where, shortSection(spec.Programs[prog].SectionName))
		}
		v.Where = slices.Compact(v.Where)
		h.Variants = append(h.Variants, *v)
	}
	return h
}

// preferUnpreempted moves the kind tp before btf and raw, because programs of perf's tracepoints run
// with preemption disabled on all kernels.
func preferUnpreempted(hooks []Hook) {
	for _, h := range hooks {
		from := slices.IndexFunc(h.Variants, func(v Variant) bool { return v.Kind == "tp" })
		to := slices.IndexFunc(h.Variants, func(v Variant) bool { return v.Kind == "btf" || v.Kind == "raw" })
		if to < 0 || from < to {
			continue
		}
		tp := h.Variants[from]
		copy(h.Variants[to+1:], h.Variants[to:from])
		h.Variants[to] = tp
	}
}

// stage sorts programs for returns of user functions first. Then the return of each call whose
// entry is observed is observed too.
func stage(prog *ebpf.ProgramSpec) int {
	if strings.HasPrefix(prog.SectionName, "uretprobe/") {
		return 0
	}
	return 1
}

// forceError is an ErrNoVariant that states what exists instead.
type forceError struct{ text string }

func (e forceError) Error() string { return e.text }

func (e forceError) Is(target error) bool { return target == ErrNoVariant }

// force removes all variants of a hook but one, for each "HOOK=KIND".
func force(hooks []Hook, words []string) error {
	for _, word := range words {
		name, kind, hasKind := strings.Cut(word, "=")
		i := slices.IndexFunc(hooks, func(h Hook) bool { return h.Name == name })
		if i < 0 {
			return forceError{fmt.Sprintf("force hook %q: the tool has no such hook; it has: %s", name, names(hooks))}
		}
		if !hasKind || kind == "" {
			return forceError{fmt.Sprintf("force hook %q: missing attach type, as in %s=%s; it has: %s", name, name, hooks[i].Variants[0].Kind, kinds(hooks[i]))}
		}
		j := slices.IndexFunc(hooks[i].Variants, func(v Variant) bool { return v.Kind == kind })
		if j < 0 {
			return forceError{fmt.Sprintf("force hook %q to attach type %q: the hook has no such attach type; it has: %s", name, kind, kinds(hooks[i]))}
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
