package biopattern

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// readAt reads blocks at these positions, one after another, in units of blocks.
func readAt(t testing.TB, f *os.File, blocks ...int) {
	t.Helper()
	b := tooltest.Block(t)
	for _, n := range blocks {
		if _, err := unix.Pread(int(f.Fd()), b, int64(n)*tooltest.BlockSize); err != nil {
			t.Fatal(err)
		}
	}
}

// onlyRow returns the only row.
func onlyRow(t testing.TB, res *tooltest.Result) tooltest.Row {
	t.Helper()
	if len(res.Rows) != 1 {
		t.Fatalf("rows %v, want one", res.Rows)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
	return res.Rows[0]
}

func check(t testing.TB, r tooltest.Row, want map[string]float64) {
	t.Helper()
	for key, n := range want {
		if r.Num(key) != n {
			t.Errorf("%s is %v, want %v: %v", key, r.Num(key), n, r)
		}
	}
}

// TestPattern reads the same number of blocks in three patterns. A flush between two reads changes
// nothing.
func TestPattern(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	for _, tt := range []struct {
		name   string
		blocks []int
		want   map[string]float64
	}{
		{"sequential", []int{10, 11, 12, 13, 14}, map[string]float64{"ios": 5, "sequential": 4, "random": 0, "sequential_percent": 100, "random_percent": 0}},
		{"random", []int{10, 20, 30, 25, 24}, map[string]float64{"ios": 5, "sequential": 0, "random": 4, "sequential_percent": 0, "random_percent": 100}},
		{"both", []int{10, 11, 30, 31, 33}, map[string]float64{"ios": 5, "sequential": 2, "random": 2, "sequential_percent": 50, "random_percent": 50}},
		{"again", []int{10, 10, 10, 11, 12}, map[string]float64{"ios": 5, "sequential": 2, "random": 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name}, func() {
				readAt(t, l.Dev, tt.blocks[:2]...)
				if err := unix.Fsync(int(l.Dev.Fd())); err != nil {
					t.Error(err)
				}
				readAt(t, l.Dev, tt.blocks[2:]...)
			})
			r := onlyRow(t, res)
			tt.want["bytes"] = 5 * tooltest.BlockSize
			check(t, r, tt.want)
			if r.Str("disk") != l.Name {
				t.Errorf("disk %q, want %s", r.Str("disk"), l.Name)
			}
		})
	}
}

// TestFirst checks that a single request is neither random nor sequential.
func TestFirst(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name, "-p", strconv.Itoa(os.Getpid())}, func() { readAt(t, l.Dev, 7) })
	r := onlyRow(t, res)
	check(t, r, map[string]float64{"ios": 1, "random": 0, "sequential": 0, "bytes": tooltest.BlockSize})
	if r.Has("random_percent") || r.Has("sequential_percent") {
		t.Errorf("percentages of nothing: %v", r)
	}
}

// TestIntervals checks that the previous request can be that of an earlier interval.
func TestIntervals(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	next := 0
	res := tooltest.JSONReports(t, Tool, []string{"-d", l.Name, "50ms"}, func(reports func() int) {
		for reports() < 3 {
			readAt(t, l.Dev, next)
			next = (next + 1) % 1024
		}
	})
	var ios, sequential, random float64
	for _, r := range res.Rows {
		ios, sequential, random = ios+r.Num("ios"), sequential+r.Num("sequential"), random+r.Num("random")
	}
	if ios < 3 || sequential+random != ios-1 {
		t.Errorf("%v sequential and %v random of %v requests, want all but the first", sequential, random, ios)
	}
}

func TestText(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	out := tooltest.TextUndisturbed(t, Tool, []string{"-d", l.Name, "-T"}, func() { readAt(t, l.Dev, 0, 1, 2, 3, 100) })
	lines := strings.Split(out, "\n")
	if len(lines) < 3 || strings.Join(strings.Fields(lines[1]), " ") != "TIME DISK %RND %SEQ COUNT KBYTES" {
		t.Fatalf("%q", out)
	}
	if f := strings.Fields(lines[2]); len(f) != 6 || strings.Join(f[1:], " ") != l.Name+" 25.00% 75.00% 5 20.00" {
		t.Errorf("%q", lines[2])
	}
}
