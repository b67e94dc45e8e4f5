package biosnoop

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func TestRequests(t *testing.T) {
	const n = 40
	l := tooltest.NewLoop(t, 0)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name}, func() {
		tooltest.ReadBlocks(t, l.Dev, n)
		tooltest.WriteBlocks(t, l.Dev, n)
		if err := unix.Fsync(int(l.Dev.Fd())); err != nil {
			t.Error(err)
		}
	})
	if len(res.Events) != 2*n+1 {
		t.Fatalf("%d requests, want %d", len(res.Events), 2*n+1)
	}
	for i, r := range res.Events[:2*n] {
		letter := map[bool]string{true: "R", false: "W"}[i < n]
		sector := float64(i % n * tooltest.Stride / 512)
		if !strings.HasPrefix(r.Str("rwbs"), letter) || i >= n && !strings.Contains(r.Str("rwbs"), "S") || r.Num("sector") != sector || r.Num("bytes") != tooltest.BlockSize {
			t.Errorf("request %d is %v, want %s at %v", i, r, letter, sector)
		}
		if r.Num("pid") != float64(os.Getpid()) || r.Str("disk") != l.Name || r.Str("partition") != l.Name || r.Num("status") != 0 {
			t.Errorf("request %d is %v", i, r)
		}
		if r.Num("latency_ns") < 100 || r.Num("latency_ns") > 60e9 {
			t.Errorf("request %d took %v ns", i, r.Num("latency_ns"))
		}
		if r.Str("pattern") != map[bool]string{true: "R"}[i > 0] {
			t.Errorf("request %d has pattern %q", i, r.Str("pattern"))
		}
	}
	if last := res.Events[2*n]; !strings.HasSuffix(strings.TrimRight(last.Str("rwbs"), "SM"), "F") || last.Num("bytes") != 0 {
		t.Errorf("flush is %v", last)
	}
}

// TestSequential checks the pattern of consecutive blocks.
func TestSequential(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	b := tooltest.Block(t)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.Name, "-p", strconv.Itoa(os.Getpid())}, func() {
		for i := range 10 {
			if _, err := unix.Pread(int(l.Dev.Fd()), b, int64(i)*tooltest.BlockSize); err != nil {
				t.Error(err)
			}
		}
	})
	for i, r := range res.Events {
		if r.Str("pattern") != map[bool]string{true: "S"}[i > 0] {
			t.Errorf("request %d is %v", i, r)
		}
	}
	if len(res.Events) != 10 {
		t.Errorf("%d requests, want 10", len(res.Events))
	}
}

func TestFilters(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	for _, args := range [][]string{{"-m", "10000"}, {"-p", "1"}, {"--filter", "bytes > 4096"}} {
		res := tooltest.JSONUndisturbed(t, Tool, append(args, "-d", l.Name), func() { tooltest.ReadBlocks(t, l.Dev, 20) })
		if len(res.Events) != 0 {
			t.Errorf("%q: %v", args, res.Events[0])
		}
	}
}

func TestText(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	out := tooltest.TextUndisturbed(t, Tool, []string{"-d", l.Name, "-Q", "-P", "60"}, func() { tooltest.ReadBlocks(t, l.Dev, 5) })
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 6 || strings.Join(strings.Fields(lines[0]), " ") != "TIME(s) COMM PID DISK T SECTOR BYTES P QUE(ms) LAT(ms)" {
		t.Fatalf("%q", out)
	}
	if f := strings.Fields(lines[5]); len(f) != 10 || f[3] != l.Name || f[5] != "64" || f[6] != "4096" || f[7] != "R" {
		t.Errorf("%q", lines[5])
	}
	out = tooltest.TextUndisturbed(t, Tool, []string{"-d", l.Name, "-t"}, func() { tooltest.ReadBlocks(t, l.Dev, 1) })
	if !strings.HasPrefix(out, "TIMESTAMP COMM ") {
		t.Errorf("%q", out)
	}
}

func TestLetters(t *testing.T) {
	const flagSync, flagMeta, flagFUA = 1 << bpfBlockFlagBLOCK_FLAG_SYNC, 1 << bpfBlockFlagBLOCK_FLAG_META, 1 << bpfBlockFlagBLOCK_FLAG_FUA
	const flagPreFlush, flagReadAhead = 1 << bpfBlockFlagBLOCK_FLAG_PREFLUSH, 1 << bpfBlockFlagBLOCK_FLAG_RAHEAD
	for _, tt := range []struct {
		op    uint8
		flags uint16
		want  string
	}{
		{0, 0, "R"}, {1, flagSync, "WS"}, {2, flagPreFlush, "FF"}, {1, flagPreFlush | flagFUA | flagSync, "FWFS"},
		{0, flagReadAhead | flagMeta, "RAM"}, {3, 0, "D"}, {9, flagSync, "NS"},
	} {
		if got := rwbs(tt.op, tt.flags); got != tt.want {
			t.Errorf("%d, %#x: %s, want %s", tt.op, tt.flags, got, tt.want)
		}
	}
}
