package fsop

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
)

func TestKernelNames(t *testing.T) {
	for _, tc := range []struct{ words, want string }{
		{"", ""},
		{"ext4", "ext4 ext3 ext2"},
		{"nfs tmpfs", "nfs nfs4 tmpfs"},
	} {
		o := Options{Type: strings.Fields(tc.words)}
		if got := o.kernelNames(); !slices.Equal(got, strings.Fields(tc.want)) {
			t.Errorf("kernel names of %q: %q, want %q", tc.words, got, tc.want)
		}
	}
}

func TestPlan(t *testing.T) {
	o := Options{Type: []string{"ext4", strings.Repeat("x", 30)}, Operation: []string{"write", "open"}}
	p, err := o.Plan()
	if err != nil {
		t.Fatal(err)
	}
	types := p.Variables["targ_types"].([]string)
	want := []string{"ext4", "ext3", "ext2", strings.Repeat("x", 30)}
	if p.Variables["targ_nr_types"] != uint32(4) || p.Variables["targ_ops"] != uint32(0b110) || !slices.Equal(types, want) {
		t.Errorf("variables %v, want the types %q, and operations write and open", p.Variables, want)
	}
	o = Options{Operation: []string{"rename"}}
	if _, err := o.Plan(); err == nil {
		t.Error("Plan with the unknown operation rename succeeds, want an error")
	}
}

// TestSelectTypes expects no file systems if the functions of one selected type are unknown, so
// that system calls are traced instead.
func TestSelectTypes(t *testing.T) {
	for _, tc := range []struct {
		names string
		want  int
	}{{"", len(fileSystems())}, {"xfs", 1}, {"xfs ext4", 2}, {"xfs tmpfs", 0}} {
		if got := selectTypes(strings.Fields(tc.names)); len(got) != tc.want {
			t.Errorf("%q: %d types, want %d", tc.names, len(got), tc.want)
		}
	}
}

// TestTargets expects that a missing function becomes a target, so that the failure to attach is
// reported.
func TestTargets(t *testing.T) {
	available := map[string]tool.Target{"b": {Name: "b", Address: 2}}
	for _, tc := range []struct {
		names string
		want  tool.Target
	}{{"a b", tool.Target{Name: "b", Address: 2}}, {"c d", tool.Target{Name: "c"}}} {
		if got := targets(strings.Fields(tc.names), available); len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: %v, want %v", tc.names, got, tc.want)
		}
	}
}

func TestAliases(t *testing.T) {
	for _, a := range Aliases("dist") {
		if _, ok := find(a.Args[1]); !ok || a.Name != a.Args[1]+"dist" {
			t.Errorf("alias %+v, want the name of a known file system followed by dist", a)
		}
	}
}

// TestCheck expects that a type is valid if its functions are known or the kernel has registered
// it.
func TestCheck(t *testing.T) {
	for name, ok := range map[string]bool{"zfs": true, "proc": true, "nosuch": false, "nodev,": false} {
		o := Options{Type: []string{name}}
		if err := o.check(); errors.Is(err, flags.ErrUsage) == ok || err == nil != ok {
			t.Errorf("check of type %s: %v, want valid: %v", name, err, ok)
		}
	}
}
