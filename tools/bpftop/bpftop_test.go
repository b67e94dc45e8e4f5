package bpftop

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() string { return strconv.Itoa(os.Getpid()) }

// long is a name that the program itself has no room for.
const long = "a_name_of_more_than_fifteen_bytes"

// newProgram is loaded, of which body are the instructions before its end.
func newProgram(t *testing.T, kind ebpf.ProgramType, body ...asm.Instruction) (*ebpf.Program, float64) {
	t.Helper()
	tooltest.Root(t)
	_ = rlimit.RemoveMemlock()
	code := append(asm.Instructions(body), asm.Mov.Imm(asm.R0, 0), asm.Return())
	ctx := &btf.Pointer{Target: &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}}
	code[0] = btf.WithFuncMetadata(code[0].WithSymbol(long), &btf.Func{
		Name: long, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
			Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Params: []btf.FuncParam{{Name: "ctx", Type: ctx}},
		},
	})
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "short", Type: kind, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return p, float64(id)
}

// runs runs it so many times, by a call for each: those of one call a signal may break off.
func runs(t *testing.T, p *ebpf.Program, n int) {
	t.Helper()
	for range n {
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
	}
}

// counted adds up what the rows of a program have counted, and returns the last one.
func counted(res *tooltest.Result, id float64) (n float64, last tooltest.Row) {
	for _, row := range res.Rows {
		if row.Num("id") == id {
			n += row.Num("runs")
			last = row
		}
	}
	return n, last
}

// What ran before is not counted; the rest is, whatever the intervals.
func TestRuns(t *testing.T) {
	p, id := newProgram(t, ebpf.SocketFilter)
	for _, args := range [][]string{{"-d", "1h"}, {"20ms"}} {
		runs(t, p, 100)
		res := tooltest.JSON(t, Tool, args, func() { runs(t, p, 1000) })
		n, row := counted(res, id)
		if n != 1000 {
			t.Errorf("%q: %v runs, want 1000", args, n)
		}
		for key, want := range map[string]any{
			"name": long, "bpf_type": "socket_filter", "pid": float64(os.Getpid()), "uid": float64(os.Getuid()), "holders": 1.0, "misses": 0.0,
		} {
			if row[key] != want {
				t.Errorf("%s is %v, want %v: %v", key, row[key], want, row)
			}
		}
		stats, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if row.Num("total_runs") != float64(stats.RunCount) {
			t.Errorf("%v runs in all, the kernel has %d", row.Num("total_runs"), stats.RunCount)
		}
	}
}

// The rates are the counts by the length of the interval.
func TestRates(t *testing.T) {
	p, id := newProgram(t, ebpf.SocketFilter)
	res := tooltest.JSON(t, Tool, []string{"-d", "1h"}, func() { runs(t, p, 5000) })
	_, row := counted(res, id)
	n, ns, length := row.Num("runs"), row.Num("run_ns"), row.Num("interval_ns")
	stats, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if ns == 0 || ns != float64(stats.Runtime) || length <= 0 {
		t.Fatalf("%v ns in %v, the kernel has %v", ns, length, stats.Runtime)
	}
	for key, want := range map[string]float64{
		"runs_per_second": n * 1e9 / length, "mean_ns": ns / n, "cpu_percent": 100 * ns / length, "total_mean_ns": ns / n,
	} {
		if got := row.Num(key); got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

// gone waits until a map that only a freed program had is gone, and the program with it.
func gone(t *testing.T, id ebpf.MapID) {
	t.Helper()
	for {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			break
		}
		m.Close()
	}
	for range 10 { // its memory is freed right after
		_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, 1 /* MEMBARRIER_CMD_GLOBAL */, 0, 0)
	}
}

// A program that ends within the interval is counted to its end.
func TestGone(t *testing.T) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	mapID, _ := info.ID()
	p, id := newProgram(t, ebpf.SocketFilter, asm.LoadMapPtr(asm.R1, m.FD()))
	res := tooltest.JSON(t, Tool, []string{"-d", "1h"}, func() {
		runs(t, p, 700)
		m.Close()
		p.Close()
		gone(t, mapID)
	})
	if n, row := counted(res, id); n != 700 || row.Str("name") != long {
		t.Errorf("%v runs, want 700: %v", n, row)
	}
}

// Nobody can tell what these did, but that they were there.
func TestUnseen(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"-d", "1h"}, func() {
		for range 3 {
			p, _ := newProgram(t, ebpf.SocketFilter)
			p.Close()
		}
		newProgram(t, ebpf.SocketFilter)
	})
	if n := res.Summary.Object("counters").Num("unseen"); n < 3 {
		t.Errorf("%v programs were not seen, want 3: %v", n, res.Summary)
	}
}

// A program that comes within the interval is counted from its beginning.
func TestNew(t *testing.T) {
	var id float64
	res := tooltest.JSON(t, Tool, []string{"-d", "1h", "--pid", self()}, func() {
		p, new := newProgram(t, ebpf.SocketFilter)
		runs(t, p, 300)
		id = new
	})
	if n, row := counted(res, id); n != 300 {
		t.Errorf("%v runs, want 300: %v", n, row)
	}
}

// A link holds its program, and there are as many holders as descriptors.
func TestLink(t *testing.T) {
	p, id := newProgram(t, ebpf.RawTracepoint)
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: p})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, row := counted(tooltest.JSON(t, Tool, []string{"1h"}, func() {}), id); row.Num("holders") != 2 {
		t.Errorf("want 2 holders: %v", row)
	}
	p.Close()
	_, row := counted(tooltest.JSON(t, Tool, []string{"1h", "--pid", self()}, func() {}), id)
	if row.Num("holders") != 1 || row.Num("pid") != float64(os.Getpid()) {
		t.Errorf("want this process to hold it: %v", row)
	}
	if _, row := counted(tooltest.JSON(t, Tool, []string{"1h", "--pid", "1"}, func() {}), id); row != nil {
		t.Errorf("process 1 does not hold it: %v", row)
	}
}

// The kernel measures for no longer than the run.
func TestGivesBack(t *testing.T) {
	p, _ := newProgram(t, ebpf.SocketFilter)
	measured := func() uint64 {
		runs(t, p, 10)
		s, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.RunCount
	}
	if measured() > 0 {
		t.Skip("somebody else has the kernel measure")
	}
	tooltest.JSON(t, Tool, nil, func() { runs(t, p, 5) })
	if n := measured(); n != 5 {
		t.Errorf("%d runs were measured, want 5", n)
	}
}

func TestText(t *testing.T) {
	p, id := newProgram(t, ebpf.SocketFilter)
	args := []string{"1h", "--filter", fmt.Sprint("id == ", id), "--columns", "id,name,runs,mean_ns", "--output", "csv"}
	if out, want := tooltest.Text(t, Tool, args, func() {}), fmt.Sprintf("id,name,runs,mean_ns\n%v,%s,0,\n", id, long); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	out := tooltest.Text(t, Tool, args[:3], func() { runs(t, p, 10) })
	if lines := strings.Split(out, "\n"); len(lines) < 3 || !strings.HasPrefix(lines[1], "ID     TYPE             NAME") ||
		!strings.HasPrefix(lines[2], fmt.Sprintf("%-6v socket_filter    %s", id, long)) {
		t.Errorf("got %q", out)
	}
}
