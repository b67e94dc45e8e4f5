package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tooltest"
)

// write creates a file in a directory.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// machine returns a finder for fake directories of procfs and tracefs.
func machine(t *testing.T) *Finder {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "kallsyms", "ffff000000000010 T vfs_read\nffff000000000000 t __pfx_vfs_read\nffff000000000020 t vfs_write\n"+
		"ffff000000000030 D vfs_data\nffff000000000040 t vfs_read.cold\nffff000000000050 t vfs_mod\t[mod]\nffff000000000060 t twin\nffff000000000070 t twin\n")
	write(t, dir, "available_filter_functions", "vfs_read\nvfs_mod [mod]\n")
	write(t, dir, "available_events", "sched:sched_switch\nsched:sched_wakeup\nftrace:function\nblock:block_rq_issue\n")
	return &Finder{Proc: dir, Tracing: dir}
}

func find(t *testing.T, f *Finder, text string) string {
	t.Helper()
	s, err := Parse(text, false)
	if err != nil {
		t.Fatal(err)
	}
	places, err := f.Find(s)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, p := range places {
		names = append(names, strings.TrimSpace(fmt.Sprintf("%s@%x %s", p.Name, p.Address&0xff, p.Module)))
	}
	return strings.Join(names, ", ")
}

func TestFind(t *testing.T) {
	f := machine(t)
	for text, want := range map[string]string{
		"vfs_read":     "vfs_read@10",
		"vfs_write":    "vfs_write@20", // not traceable by ftrace, but a kprobe can work
		"vfs_*":        "vfs_mod@50 mod, vfs_read@10",
		"vfs_read+0x4": "vfs_read@14",
		"twin":         "twin@60, twin@70",
		"none":         "kernel function none: not found",
		"t:sched:*":    "sched/sched_switch@0, sched/sched_wakeup@0",
		"t:*:*":        "block/block_rq_issue@0, sched/sched_switch@0, sched/sched_wakeup@0",
		"t:sched:x":    "tracepoint sched:x: not found",
		"nolibrary:x":  "library or command nolibrary: not found",
	} {
		if got := find(t, f, text); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}

func TestFindUser(t *testing.T) {
	path := (&tooltest.Native{}).Write(t)
	var f Finder
	places, err := f.Find(Spec{Kind: User, File: path, Name: "*"})
	var names []string
	for _, p := range places {
		names = append(names, p.Name)
		if p.File.Path != path || p.Offset < 0x1000 {
			t.Errorf("%s is at %#x of %s", p.Name, p.Offset, p.File.Path)
		}
	}
	if got := strings.Join(names, " "); err != nil || got != "_start nap recurse touch" {
		t.Errorf("found %s, %v", got, err)
	}
	self, err := os.Executable() // a Go program
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Find(Spec{Kind: User, File: self, Name: "*", Return: true}); !errors.Is(err, ErrGo) {
		t.Errorf("return of a Go function: %v, want ErrGo", err)
	}
}

// TestFindPublicName checks that of several names of a function the public one is found: c:*alloc
// finds malloc like c:malloc.
func TestFindPublicName(t *testing.T) {
	path, err := findLibrary("c")
	if err != nil {
		t.Skip(err)
	}
	var f Finder
	one, err := f.Find(Spec{Kind: User, File: path, Name: "malloc"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Find(Spec{Kind: User, File: path, Name: "*alloc"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Offset == one[0].Offset && p.Name != "malloc" {
			t.Errorf("name of malloc is %s", p.Name)
		}
	}
}

func TestInstances(t *testing.T) {
	place := func(name string, kind Kind, isReturn bool) Place {
		return Place{Target: probe.Target{Name: name}, Kind: kind, Return: isReturn}
	}
	instances, places := Instances([]Place{
		place("u", USDT, false), place("k", Kernel, false), place("r", Kernel, true), place("f", User, false), place("l", Kernel, false),
	}, true)
	var got []string
	for _, in := range instances {
		for i, target := range in.Targets {
			if places[in.First+uint64(i)].Name != target.Name || !in.AllowPartial {
				t.Errorf("%s: target %s has the ID of %s, or AllowPartial is false", in.Hook, target.Name, places[in.First+uint64(i)].Name)
			}
			got = append(got, in.Hook+":"+target.Name)
		}
	}
	if want := "kernel:k kernel:l kernel_return:r user:u user:f"; strings.Join(got, " ") != want {
		t.Errorf("instances %q, want %s", got, want)
	}
}
