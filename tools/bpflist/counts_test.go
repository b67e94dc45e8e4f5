package bpflist

import (
	"debug/elf"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/corescope/corescope/internal/tooltest"
)

// entry returns the path of this program and the file offset of its first instruction, which does not
// run any more.
func entry(t *testing.T) (path string, offset uint64) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && f.Entry >= p.Vaddr && f.Entry < p.Vaddr+p.Filesz {
			return path, f.Entry - p.Vaddr + p.Off
		}
	}
	t.Fatalf("no segment contains the entry point %#x", f.Entry)
	return "", 0
}

// countsOf returns the counts of this process by kind, or by the name of a probe.
func countsOf(t *testing.T, key, verbosity string) map[string]float64 {
	t.Helper()
	counts := map[string]float64{}
	for _, r := range tooltest.JSON(t, Tool, append(self(), verbosity), nil).Events {
		counts[r.Str(key)] += r.Num("count")
		if r.Num("pid") != float64(os.Getpid()) {
			t.Errorf("row of another process: %v", r)
		}
	}
	return counts
}

// TestCounts adds a known number of objects and probes to those of this process.
func TestCounts(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	before := countsOf(t, "kind", "-v")
	newMap(t)
	p, _ := newProgram(t, ebpf.Kprobe)
	path, offset := entry(t)
	file, err := link.OpenExecutable(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, attach := range []func(string, *ebpf.Program, *link.UprobeOptions) (link.Link, error){file.Uprobe, file.Uretprobe} {
		l, err := attach("", p, &link.UprobeOptions{Address: offset})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	after := countsOf(t, "kind", "-v")
	for kind, want := range map[string]float64{"map": 1, "prog": 1, "uprobe": 2, "kprobe": 0, "perf_event": 0} {
		if got := after[kind] - before[kind]; got != want {
			t.Errorf("%v more of kind %s, want %v: %v after %v", got, kind, want, after, before)
		}
	}
	probes := countsOf(t, "probe", "-vv")
	for _, name := range []string{"uprobe", "uretprobe"} {
		if name = fmt.Sprintf("%s:%s:0x%x", name, path, offset); probes[name] != 1 {
			t.Errorf("%v probes %s, want 1: %v", probes[name], name, probes)
		}
	}
	tooltest.Fails(t, Tool, []string{"-v", "-M"}, 2, "--maps")
}

// TestCountsOfMulti checks that a link to several functions counts as a link and as these functions.
func TestCountsOfMulti(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	if !tooltest.HasFunction(t, "bpf_uprobe_multi_link_attach") {
		t.Skip("this kernel has no links to several functions of a file (before 6.6)")
	}
	path, offset := entry(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "cs_multi", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	file, err := link.OpenExecutable(path)
	if err != nil {
		t.Fatal(err)
	}
	before := countsOf(t, "kind", "-v")
	l, err := file.UprobeMulti(nil, p, &link.UprobeMultiOptions{Addresses: []uint64{offset, offset + 64}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	after := countsOf(t, "kind", "-v")
	if links, probes := after["link"]-before["link"], after["uprobe"]-before["uprobe"]; links != 1 || probes != 2 {
		t.Errorf("%v more links and %v uprobes, want 1 and 2", links, probes)
	}
}
