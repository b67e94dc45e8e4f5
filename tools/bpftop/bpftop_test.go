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

// long is a name that is longer than the kernel keeps in the program itself.
const long = "a_name_of_more_than_fifteen_bytes"

// newProgram loads a program with the instructions of body before its exit.
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

// runs runs the program n times, with one call each, because a signal can interrupt a call with
// repetitions.
func runs(t *testing.T, p *ebpf.Program, n int) {
	t.Helper()
	for range n {
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
	}
}

// counted sums the rows of a program and returns the last one.
func counted(res *tooltest.Result, id float64) (n float64, last tooltest.Row) {
	for _, row := range res.Rows {
		if row.Num("id") == id {
			n += row.Num("runs")
			last = row
		}
	}
	return n, last
}

// TestRuns checks that runs before the start are not counted, and all others are, for any interval.
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
			t.Errorf("%v runs in total, kernel counts %d", row.Num("total_runs"), stats.RunCount)
		}
	}
}

// TestRates checks that rates are counts divided by the length of the interval.
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
		t.Fatalf("%v ns in %v, kernel counts %v", ns, length, stats.Runtime)
	}
	for key, want := range map[string]float64{
		"runs_per_second": n * 1e9 / length, "mean_ns": ns / n, "cpu_percent": 100 * ns / length, "total_mean_ns": ns / n,
	} {
		if got := row.Num(key); got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

// awaitFreed waits until a map that only a freed program used is freed, and with it the program.
func awaitFreed(t *testing.T, id ebpf.MapID) {
	t.Helper()
	for {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			break
		}
		m.Close()
	}
	for range 10 { // its memory is freed immediately afterwards
		_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, 1 /* MEMBARRIER_CMD_GLOBAL */, 0, 0)
	}
}

// TestFreed checks that a program that is freed within an interval is counted until then.
func TestFreed(t *testing.T) {
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
		awaitFreed(t, mapID)
	})
	if n, row := counted(res, id); n != 700 || row.Str("name") != long {
		t.Errorf("%v runs, want 700: %v", n, row)
	}
}

// TestUnseen checks that programs loaded and freed between two readings are reported.
func TestUnseen(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"-d", "1h"}, func() {
		for range 3 {
			p, _ := newProgram(t, ebpf.SocketFilter)
			p.Close()
		}
		newProgram(t, ebpf.SocketFilter)
	})
	if n := res.Summary.Object("counters").Num("unseen"); n < 3 {
		t.Errorf("%v unseen programs, want 3: %v", n, res.Summary)
	}
}

// TestNew checks that a program that is loaded within an interval is counted from the start.
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

// TestLink checks that a link counts as a holder of its program, once per descriptor.
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
		t.Errorf("want this process as the holder: %v", row)
	}
	if _, row := counted(tooltest.JSON(t, Tool, []string{"1h", "--pid", "1"}, func() {}), id); row != nil {
		t.Errorf("want process 1 as a holder: %v", row)
	}
}

// TestDisablesStats checks that the kernel stops measuring at the end of the run.
func TestDisablesStats(t *testing.T) {
	tooltest.Alone(t, "the kernel measures run times as long as any process requests it")
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
		t.Skip("run times are measured by another process or by sysctl")
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
