package probe

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// ofSize returns instructions of a program.
func ofSize(n int) (ins asm.Instructions) {
	for range n - 1 {
		ins = append(ins, asm.Mov.Imm(asm.R0, 0))
	}
	return append(ins, asm.Return())
}

// TestFirstPrograms checks that iterators are loaded with the first variants of the hooks, and nothing else.
func TestFirstPrograms(t *testing.T) {
	spec := newObject().
		add("exit__btf", "sys_exit").add("exit__raw", "sys_exit").
		add("enter__uprobe", "").
		add("count__only", "sched_switch").CollectionSpec
	spec.Programs["enter__uprobe"].SectionName = "uprobe/libc:read"
	for _, name := range []string{"begin", "settle", "list"} {
		spec.Programs[name] = &ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, SectionName: "iter/task", Instructions: ofSize(2)}
	}
	o := Objects{spec: spec, options: Options{
		Begin: []Iterator{{Program: "begin"}}, Settle: []Iterator{{Program: "settle"}, {Program: "missing"}},
	}}
	hooks, err := o.Hooks()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.firstPrograms(hooks), " "); got != "count__only exit__btf begin settle" {
		t.Errorf("loaded first: %s", got)
	}
}

// TestAttachOrder checks that hooks, and the programs of one, are attached in the order of their names, whatever
// their size: programs for ends of operations come first in irq.bpf.h and rq.bpf.h, and otherwise would miss ends of
// observed begins.
func TestAttachOrder(t *testing.T) {
	o := newObject().
		add("all__raw__done", "sched_switch", ofSize(90)...).
		add("all__raw__start", "sched_wakeup", ofSize(30)...).
		add("other__raw", "sys_exit", ofSize(60)...).
		add("single__raw", "sys_enter", ofSize(10)...).
		load(t, Options{})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, l := range o.links {
		info, err := l.Info()
		if err != nil {
			t.Fatal(err)
		}
		for name, prog := range o.programs {
			if about, err := prog.Info(); err != nil {
				t.Fatal(err)
			} else if id, _ := about.ID(); id == info.Program {
				order = append(order, name)
			}
		}
	}
	if want := []string{"all__raw__done", "all__raw__start", "other__raw", "single__raw"}; !slices.Equal(order, want) {
		t.Errorf("attached %q, want %q", order, want)
	}
}

// TestFirstFailure checks that the error is that of the first hook by name, whatever the size of the programs.
func TestFirstFailure(t *testing.T) {
	add := func() object {
		return newObject().
			add("a__raw", "sys_exit", ofSize(90)...).
			add("b__raw", "no_such_tracepoint", ofSize(60)...).
			add("c__raw", "no_such_tracepoint", ofSize(30)...)
	}
	for _, test := range []struct {
		optional []string
		want     string
	}{
		{nil, "b"}, {[]string{"b"}, "c"}, {[]string{"b", "c"}, ""}, {[]string{"a", "b"}, "c"},
	} {
		var failed *HookError
		err := add().load(t, Options{Optional: test.optional}).Attach()
		if errors.As(err, &failed); (err == nil) != (test.want == "") || err != nil && failed.Hook != test.want {
			t.Errorf("with %q optional: %v, want the error of %q", test.optional, err, test.want)
		}
	}
}
