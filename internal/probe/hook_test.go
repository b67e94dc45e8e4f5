package probe

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// newSpec returns a spec with programs of these names in sections "sec/NAME".
func newSpec(names ...string) *ebpf.CollectionSpec {
	spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{}}
	for _, name := range names {
		spec.Programs[name] = &ebpf.ProgramSpec{Name: name, SectionName: "sec/" + name}
	}
	return spec
}

// show formats hooks as "HOOK: KIND(PROGRAM PROGRAM) KIND(PROGRAM)".
func show(hooks []Hook) string {
	var all []string
	for _, h := range hooks {
		text := h.Name + ":"
		for _, v := range h.Variants {
			text += fmt.Sprintf(" %s(%s)", v.Kind, strings.Join(v.Programs, " "))
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func TestHooks(t *testing.T) {
	for _, tt := range []struct {
		programs, want string
	}{
		{"", ""},
		{"exit", "exit: only(exit)"},
		{"b a", "a: only(a); b: only(b)"},
		{"open__kprobe open__raw open__zzz open__tp open__aaa open__uprobe open__btf open__fentry",
			"open: fentry(open__fentry) btf(open__btf) raw(open__raw) tp(open__tp) kprobe(open__kprobe) uprobe(open__uprobe) aaa(open__aaa) zzz(open__zzz)"},
		{"open__tp__exit open__tp__enter open__btf", "open: btf(open__btf) tp(open__tp__enter open__tp__exit)"},
		{"open__tp__a__b open__tp", "open: tp(open__tp open__tp__a__b)"},
		{"sock_open__tp sock__tp", "sock: tp(sock__tp); sock_open: tp(sock_open__tp)"},
	} {
		if got := show(Hooks(newSpec(strings.Fields(tt.programs)...))); got != tt.want {
			t.Errorf("%q:\n%s, want\n%s", tt.programs, got, tt.want)
		}
	}
}

func TestPreferUnpreempted(t *testing.T) {
	for programs, want := range map[string]string{
		"open__tp open__raw open__btf":                             "open: tp(open__tp) btf(open__btf) raw(open__raw)",
		"open__tp open__raw open__btf open__fentry open__kprobe":   "open: fentry(open__fentry) tp(open__tp) btf(open__btf) raw(open__raw) kprobe(open__kprobe)",
		"open__raw open__btf":                                      "open: btf(open__btf) raw(open__raw)",
		"open__tp open__kprobe exit__raw__a exit__raw__b exit__tp": "exit: tp(exit__tp) raw(exit__raw__a exit__raw__b); open: tp(open__tp) kprobe(open__kprobe)",
	} {
		hooks := Hooks(newSpec(strings.Fields(programs)...))
		preferUnpreempted(hooks)
		if got := show(hooks); got != want {
			t.Errorf("%q:\n%s, want\n%s", programs, got, want)
		}
	}
}

func TestHooksOmitIterators(t *testing.T) {
	spec := newSpec("existing", "open__btf")
	spec.Programs["existing"].AttachType = ebpf.AttachTraceIter
	if got := show(Hooks(spec)); got != "open: btf(open__btf)" {
		t.Error(got)
	}
}

func TestVariantString(t *testing.T) {
	h := Hooks(newSpec("open__tp__exit", "open__tp__enter"))
	if got := h[0].Variants[0].String(); got != "sec/open__tp__enter + sec/open__tp__exit" {
		t.Error(got)
	}
}

func TestForce(t *testing.T) {
	spec := newSpec("open__btf", "open__raw", "open__tp", "exit__raw", "exit__tp", "seen")
	for _, tt := range []struct{ words, want string }{
		{"", "exit: raw(exit__raw) tp(exit__tp); open: btf(open__btf) raw(open__raw) tp(open__tp); seen: only(seen)"},
		{"open=tp", "exit: raw(exit__raw) tp(exit__tp); open: tp(open__tp); seen: only(seen)"},
		{"open=raw exit=tp seen=only", "exit: tp(exit__tp); open: raw(open__raw); seen: only(seen)"},
	} {
		hooks := Hooks(spec)
		if err := force(hooks, strings.Fields(tt.words)); err != nil || show(hooks) != tt.want {
			t.Errorf("%q: %s, %v, want %s", tt.words, show(hooks), err, tt.want)
		}
	}
	for word, want := range map[string]string{
		"close=tp": `"close": the tool has no such hook; it has: exit, open, seen`, "": "exit, open, seen", "=tp": "exit, open, seen",
		"open":  `"open": missing attach type, as in open=btf; it has: btf, raw, tp`,
		"open=": "missing attach type", "open=btf=raw": "btf, raw, tp",
		"open=kprobe": `"open" to attach type "kprobe": the hook has no such attach type; it has: btf, raw, tp`,
	} {
		err := force(Hooks(spec), []string{word})
		if !errors.Is(err, ErrNoVariant) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", word, err, want)
		}
	}
}

func TestObjectsHooks(t *testing.T) {
	o := &Objects{spec: newSpec("a__tp", "b__tp", "b__raw", "c"), options: Options{Without: []string{"c", "none"}, Force: []string{"b=tp"}}}
	hooks, err := o.Hooks()
	if err != nil || show(hooks) != "a: tp(a__tp); b: tp(b__tp)" {
		t.Errorf("%s, %v", show(hooks), err)
	}
	o.options.Force = []string{"x=y"}
	if _, err := o.Hooks(); !errors.Is(err, ErrNoVariant) {
		t.Error(err)
	}
	if err := o.Attach(); !errors.Is(err, ErrNoVariant) {
		t.Error(err)
	}
	if _, err := o.Explain(); !errors.Is(err, ErrNoVariant) {
		t.Error(err)
	}
}

func TestNeeds(t *testing.T) {
	for _, section := range []string{
		"fentry/f", "fexit/f", "fentry.s/f", "tp_btf/t", "raw_tp/t", "raw_tracepoint/t", "tp/a/b", "tracepoint/a/b", "kprobe/f",
		"kretprobe/f", "kprobe.multi/f", "uprobe/f", "iter/task", "iter.s/task", "perf_event",
	} {
		if Needs(section) == "" {
			t.Errorf("no needs for section %s", section)
		}
	}
	if got := Needs("xdp"); got != "" {
		t.Errorf("needs of section xdp: %q, want none", got)
	}
	if Needs("fentry.s/f") != Needs("fexit/f") || Needs("tp_btf/t") == Needs("tp/t") {
		t.Error("wrong needs for fentry.s or tp_btf")
	}
}
