package bitesize

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestEnd detaches the programs of issues while a disk is read, as at the end of a run, when the programs are
// detached one after the other. Completions are counted as lost only until the end.
func TestEnd(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	limit(t, l)
	var disk unix.Stat_t
	if err := unix.Stat(l.Path, &disk); err != nil {
		t.Fatal(err)
	}
	o := load(t, probe.Options{
		Variables: map[string]any{"targ_dev": unix.Major(disk.Rdev)<<20 | unix.Minor(disk.Rdev)},
		Without:   []string{"issue", "submit"},
	})
	// As if an issue had been observed before.
	if err := o.Variables["first_issue_ns"].Set(uint64(1)); err != nil {
		t.Fatal(err)
	}
	const n = 10
	for _, observing := range []bool{true, false} {
		if err := o.Variables["observing"].Set(observing); err != nil {
			t.Fatal(err)
		}
		readSizes(t, l.Dev, n, 4<<10)
		lost, err := o.Counts("lost").Read()
		if err != nil {
			t.Fatal(err)
		}
		if lost["unobserved"] != n {
			t.Errorf("lost %v with observing %v, want %d unobserved", lost, observing, n)
		}
	}
}

// load loads and attaches the programs.
func load(t *testing.T, options probe.Options) *probe.Objects {
	t.Helper()
	kernel, err := probe.NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	options.Kernel = kernel
	o, err := probe.Load(spec, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	return o
}
