package bitesize

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestEnd reads from a disk without the programs of issues, as at the end of a run, when the programs are detached
// one after the other. Completions are counted as lost only until the end.
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
	// Others can read the disk too, such as udev when it appears.
	const n = 10
	for _, observing := range []bool{true, false} {
		if err := o.Variables["observing"].Set(observing); err != nil {
			t.Fatal(err)
		}
		before := unobserved(t, o)
		readSizes(t, l.Dev, n, 4<<10)
		if lost := unobserved(t, o) - before; observing && lost < n || !observing && lost != 0 {
			t.Errorf("%d of %d requests lost (unobserved) with observing %v", lost, n, observing)
		}
	}
}

func unobserved(t *testing.T, o *probe.Objects) uint64 {
	t.Helper()
	lost, err := o.Counts("lost").Read()
	if err != nil {
		t.Fatal(err)
	}
	return lost["unobserved"]
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
