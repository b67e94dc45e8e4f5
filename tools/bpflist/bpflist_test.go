package bpflist

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"-p", strconv.Itoa(os.Getpid())} }

func newMap(t *testing.T) (*ebpf.Map, float64) {
	t.Helper()
	tooltest.Root(t)
	_ = rlimit.RemoveMemlock()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "cs_map", Type: ebpf.LRUHash, KeySize: 12, ValueSize: 34, MaxEntries: 567})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return m, float64(id)
}

func newProgram(t *testing.T, kind ebpf.ProgramType) (*ebpf.Program, *ebpf.ProgramInfo) {
	t.Helper()
	tooltest.Root(t)
	_ = rlimit.RemoveMemlock()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "cs_program", Type: kind, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	return p, info
}

func find(t *testing.T, res *tooltest.Result, kind string, id float64) tooltest.Row {
	t.Helper()
	rows := res.Where(func(r tooltest.Row) bool { return r.Str("kind") == kind && r.Num("id") == id })
	if len(rows) != 1 {
		t.Fatalf("%s %v: %d rows, want one: %v", kind, id, len(rows), rows)
	}
	return rows[0]
}

func check(t *testing.T, row tooltest.Row, want map[string]any) {
	t.Helper()
	for key, w := range want {
		if row[key] != w {
			t.Errorf("%s is %v, want %v: %v", key, row[key], w, row)
		}
	}
}

func TestMap(t *testing.T) {
	m, id := newMap(t)
	check(t, find(t, tooltest.JSON(t, Tool, nil, nil), "map", id), map[string]any{
		"name": "cs_map", "bpf_type": "lru_hash", "key_bytes": 12.0, "value_bytes": 34.0, "max_entries": 567.0,
		"holders": 1.0, "pid": float64(os.Getpid()), "fd": float64(m.FD()), "runs": nil, "tag": nil,
	})
	if rows := tooltest.JSON(t, Tool, []string{"--maps", "-p", "2"}, nil).Events; len(rows) != 0 {
		t.Errorf("held by a kernel thread: %v", rows)
	}
}

// TestProgram runs a program 1,000 times while the kernel measures run times.
func TestProgram(t *testing.T) {
	p, info := newProgram(t, ebpf.SocketFilter)
	id, _ := info.ID()
	clone, err := p.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer clone.Close()
	measuring, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: 1000})
	measuring.Close()
	if err != nil {
		t.Fatal(err)
	}
	row := find(t, tooltest.JSON(t, Tool, []string{"-P"}, nil), "prog", float64(id))
	check(t, row, map[string]any{
		"name": "cs_program", "bpf_type": "socket_filter", "tag": info.Tag, "holders": 2.0, "pid": float64(os.Getpid()),
		"loaded_uid": float64(os.Getuid()), "max_entries": nil,
	})
	if age := row.Num("age_ns"); age <= 0 || age > 60e9 {
		t.Errorf("age is %v", age)
	}
	stats, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if !row.Has("runs") && !tooltest.HasFunction(t, "bpf_iter_bpf_link") {
		t.Skip("before 5.19 counts need the kernel's variables in /proc/kallsyms")
	}
	if row.Num("runs") != 1000 || row.Num("run_ns") != float64(stats.Runtime) {
		t.Errorf("ran %v times, %v ns, want 1000, %d", row["runs"], row["run_ns"], stats.Runtime)
	}
}

func TestLink(t *testing.T) {
	p, info := newProgram(t, ebpf.RawTracepoint)
	id, _ := info.ID()
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: p})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	linkInfo, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	res := tooltest.JSON(t, Tool, append(self(), "--links"), nil)
	if strings.Contains(res.Stderr, "iterator links") {
		if tooltest.HasFunction(t, "bpf_iter_bpf_link") {
			t.Fatalf("the kernel has an iterator of links: %s", res.Stderr)
		}
		t.Skipf("the kernel has no iterator of links (before 5.19): %s", res.Stderr)
	}
	check(t, find(t, res, "link", float64(linkInfo.ID)), map[string]any{
		"bpf_type": "raw_tracepoint", "name": "cs_program", "prog_id": float64(id), "holders": 1.0, "pid": float64(os.Getpid()),
	})
}

// ids returns the IDs of all programs, maps and links, from bpf(2).
func ids(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	prog, err := ebpf.ProgramGetNextID(0)
	for ; err == nil; prog, err = ebpf.ProgramGetNextID(prog) {
		all[fmt.Sprint("prog ", prog)] = true
	}
	m, err := ebpf.MapGetNextID(0)
	for ; err == nil; m, err = ebpf.MapGetNextID(m) {
		all[fmt.Sprint("map ", m)] = true
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		all[fmt.Sprint("link ", links.ID)] = true
	}
	return all
}

// TestEveryID checks that objects that exist before and after the run are listed exactly once.
func TestEveryID(t *testing.T) {
	newMap(t)
	newProgram(t, ebpf.SocketFilter)
	before := ids(t)
	res := tooltest.JSON(t, Tool, nil, nil)
	after := ids(t)
	rows := map[string]int{}
	for _, row := range res.Events {
		rows[fmt.Sprint(row.Str("kind"), " ", int(row.Num("id")))]++
	}
	for key, n := range rows {
		if n != 1 {
			t.Errorf("%s is listed %d times", key, n)
		}
	}
	lacksLinks := strings.Contains(res.Stderr, "iterator links")
	stayed := 0
	for key := range before {
		if !after[key] || lacksLinks && strings.HasPrefix(key, "link") {
			continue
		}
		if stayed++; rows[key] == 0 {
			t.Errorf("%s is not listed", key)
		}
	}
	if stayed < 2 || res.Summary.Num("lost") != 0 {
		t.Errorf("%d objects existed throughout, summary %v", stayed, res.Summary)
	}
}

func TestText(t *testing.T) {
	_, id := newMap(t)
	args := append(self(), "-M", "--columns", "kind,id,bpf_type,runs", "--filter", "name == 'cs_map'")
	out := tooltest.Text(t, Tool, args, nil)
	if got, want := strings.Join(strings.Fields(out), " "), fmt.Sprintf("KIND ID TYPE RUNS map %.0f lru_hash -", id); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out = tooltest.Text(t, Tool, append(args, "--output", "csv"), nil)
	if want := fmt.Sprintf("kind,id,bpf_type,runs\nmap,%.0f,lru_hash,\n", id); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
