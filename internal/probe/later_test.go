package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// TestLaterVariants attaches hooks whose first variant fails, and decodes the hidden ones once.
func TestLaterVariants(t *testing.T) {
	if !canHide() {
		t.Skip("nothing is hidden from Linux 7.0 on")
	}
	decoded := 0
	o := newObject().
		add("enter__btf", "no_such_tracepoint").
		add("exit__btf", "no_such_tracepoint").
		add("switch__btf", "sched_switch").
		add("wakeup__btf", "no_such_tracepoint").
		add("wakeup__raw", "sched_wakeup", invalid()...). // not hidden
		load(t, Options{Rest: func() (*ebpf.CollectionSpec, error) {
			decoded++
			return newObject().
				add("enter__btf", "sys_enter"). // the programs of the object stay
				add("enter__raw", "sys_enter").
				add("exit__btf", "no_such_tracepoint").
				add("exit__raw", "sys_exit", invalid()...).
				add("exit__tp", "sys_exit").
				add("switch__btf", "sched_switch").
				add("switch__raw", "sched_switch").
				add("wakeup__btf", "no_such_tracepoint").
				add("wakeup__raw", "sched_wakeup", invalid()...).
				add("wakeup__tp", "sched_wakeup").CollectionSpec, nil
		}})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	const missing = "btf:attach point does not exist, "
	for hook, want := range map[string]string{
		"enter": missing + "raw:works", "exit": missing + "raw:refused by the verifier, tp:works", "switch": "btf:works",
		"wakeup": missing + "raw:refused by the verifier, tp:works",
	} {
		if got := results(o.Tried[hook]); got != want {
			t.Errorf("%s: tried %s, want %s", hook, got, want)
		}
	}
	if decoded != 1 {
		t.Errorf("the object was decoded %d times, want 1", decoded)
	}
}

// TestLaterIsNotDecoded checks that nothing is decoded if no hook has hidden variants that could work.
func TestLaterIsNotDecoded(t *testing.T) {
	rest := func() (*ebpf.CollectionSpec, error) { return nil, errors.New("decoded") }
	o := newObject().add("exit__btf", "sys_exit").add("open__kprobe", "no_such_tracepoint").load(t, Options{Rest: rest, Optional: []string{"open"}})
	if err := o.Attach(); err != nil {
		t.Error(err)
	}
}

// TestLaterIfExplained checks that Explain and forced hooks have all variants.
func TestLaterIfExplained(t *testing.T) {
	if !canHide() {
		t.Skip("nothing is hidden from Linux 7.0 on")
	}
	first := func() object { return newObject().add("exit__btf", "sys_exit") }
	rest := func() (*ebpf.CollectionSpec, error) { return first().add("exit__raw", "sys_exit").CollectionSpec, nil }
	tried, err := first().load(t, Options{Rest: rest}).Explain()
	if got := results(tried["exit"]); err != nil || got != "btf:works, raw:works" {
		t.Errorf("explained: %s, %v", got, err)
	}
	o := first().load(t, Options{Rest: rest, Force: []string{"exit=raw"}})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if got := results(o.Tried["exit"]); got != "raw:works" {
		t.Errorf("forced: %s", got)
	}
}

// TestHideUnneeded decodes objects of tools with and without the hidden programs.
func TestHideUnneeded(t *testing.T) {
	for _, test := range []struct {
		tool    string
		without []string
		isOld   bool     // before Linux 7.0
		hidden  []string // hooks and kinds
	}{
		{"opensnoop", nil, true, []string{"command__raw", "open__raw", "open__tp"}},
		{"tcplife", nil, true, []string{"accept__raw", "accept__tp", "state__raw"}},
		{"filelife", nil, true, []string{"create__raw", "create__tp"}}, // not kprobe after fentry
		{"opensnoop", []string{"command"}, false, []string{"command__btf", "command__raw"}},
		{"biolatency", []string{"insert", "submit"}, true, []string{
			"biocomplete__raw", "bioqueue__raw", "complete__raw", "insert__btf", "insert__raw", "issue__raw", "merge__raw", "requeue__raw",
			"submit__btf", "submit__oldbtf", "submit__oldraw", "submit__raw",
		}},
		{"biolatency", []string{"insert"}, false, nil}, // one section with submit__oldbtf
		{"biosnoop", []string{"dirty"}, true, []string{
			"complete__raw", "dirty__btf", "dirty__oldbtf", "dirty__oldraw", "dirty__raw", "issue__raw", "merge__raw", "requeue__raw",
		}}, // all kinds of submit stay, and insert__raw in the section of one of them
	} {
		object := inflateObject(t, "../../tools/"+test.tool+"/bpf_x86_bpfel.o.gz")
		all := decodeObject(t, object)
		if err := hideUnneeded(object, test.without, test.isOld); err != nil {
			t.Fatal(err)
		}
		first := decodeObject(t, object)
		var hidden []string
		for name := range all.Programs {
			if hook, kind := split(name); first.Programs[name] == nil {
				hidden = append(hidden, hook+"__"+kind)
			}
		}
		slices.Sort(hidden)
		if hidden = slices.Compact(hidden); !slices.Equal(hidden, test.hidden) {
			t.Errorf("%s: hidden are %q, want %q", test.tool, hidden, test.hidden)
		}
		if len(first.Maps) != len(all.Maps) || len(first.Variables) != len(all.Variables) {
			t.Errorf("%s: %d maps, %d variables, want %d and %d", test.tool, len(first.Maps), len(first.Variables), len(all.Maps), len(all.Variables))
		}
		for name, prog := range first.Programs {
			if got, want := described(prog), described(all.Programs[name]); !slices.Equal(got, want) {
				t.Errorf("%s: %s has %d instructions that differ from the %d of the whole object", test.tool, name, len(got), len(want))
			}
		}
	}
	if err := hideUnneeded([]byte("no object"), nil, true); err == nil {
		t.Error("no error for a file that is no object")
	}
}

// described returns the instructions of a program as text, with the types that they refer to.
func described(prog *ebpf.ProgramSpec) (all []string) {
	for i := range prog.Instructions {
		ins := &prog.Instructions[i]
		all = append(all, fmt.Sprintf("%v %q %q %v %v", ins, ins.Symbol(), ins.Reference(), btf.FuncMetadata(ins), btf.CORERelocationMetadata(ins)))
	}
	return all
}

// TestIsLater checks which kinds of a hook are hidden.
func TestIsLater(t *testing.T) {
	for all, want := range map[string]string{
		"btf raw tp":            "raw tp",
		"btf tp":                "tp",
		"raw tp":                "",
		"fentry btf tp":         "tp",
		"btf raw multi":         "",
		"btf raw oldbtf oldraw": "", // oldbtf can be in a section with programs of another hook
		"btf raw ":              "", // a program without a target
		"only":                  "",
	} {
		kinds := strings.Split(all, " ")
		later := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return !isLater(kind, kinds) })
		if got := strings.Join(later, " "); got != want {
			t.Errorf("%q: %q are hidden, want %q", all, got, want)
		}
	}
}
