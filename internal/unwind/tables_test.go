package unwind

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// fake are maps in memory, which are followed as the kernel's programs do.
type fake struct {
	rules     map[uint32]Rule
	blocks    map[uint32]Block
	mappings  map[uint32]Mapping
	processes map[uint32]Process
}

func newFake() *fake {
	return &fake{map[uint32]Rule{}, map[uint32]Block{}, map[uint32]Mapping{}, map[uint32]Process{}}
}

func (f *fake) PutRule(at uint32, r Rule) error         { f.rules[at] = r; return nil }
func (f *fake) PutBlock(at uint32, b *Block) error      { f.blocks[at] = *b; return nil }
func (f *fake) PutMapping(at uint32, m *Mapping) error  { f.mappings[at] = *m; return nil }
func (f *fake) PutProcess(pid uint32, p *Process) error { f.processes[pid] = *p; return nil }
func (f *fake) DropProcess(pid uint32) error            { delete(f.processes, pid); return nil }

// rule is that of an address of a process.
func (f *fake) rule(pid uint32, pc uint64) (found Rule) {
	p := f.processes[pid]
	for i := range p.Count {
		m := f.mappings[p.First+i]
		if pc < m.Start || pc >= m.End {
			continue
		}
		for k := range m.Count {
			b := f.blocks[m.First+k]
			for row, start := range b.PC {
				if uint64(start) <= pc-m.Bias {
					found = f.rules[uint32(b.Rule[row])]
				}
			}
		}
	}
	return found
}

// sleeper is a process with a C library.
func sleeper(t *testing.T) uint32 {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Write([]byte{'x'})
	io.ReadFull(out, make([]byte, 1)) // it has its libraries now
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return uint32(cmd.Process.Pid)
}

var roomy = Limits{Rules: 1 << 14, Blocks: 1 << 12, Mappings: 1 << 10, Processes: 10}

// Each address of a process has the rule that its file's table has.
func TestFollow(t *testing.T) {
	maps, pid := newFake(), sleeper(t)
	tables := New(maps, roomy)
	if err := tables.Follow(pid, 7); err != nil {
		t.Fatal(err)
	}
	p := tables.processes[pid]
	if p == nil || len(p.mappings) < 3 || maps.processes[pid].Space != 7 {
		t.Fatalf("process is %+v, %+v", p, maps.processes[pid])
	}
	for i, m := range p.mappings {
		var with int
		for pc := m.Start; pc < m.End; pc += (m.End - m.Start) / 16 {
			if maps.rule(pid, pc) != 0 {
				with++
			}
		}
		if with == 0 {
			t.Errorf("mapping %d has no rules: %+v", i, m)
		}
	}
	if err := tables.Follow(pid, 0); err != nil || maps.processes[pid].Space != 7 || tables.processes[pid] != p {
		t.Errorf("what has not changed is written anew: %v", err)
	}
	if err := tables.Follow(pid, 8); err != nil || maps.processes[pid].Space != 8 {
		t.Errorf("space is %d: %v", maps.processes[pid].Space, err)
	}
}

// What has no room is said, and no table is half there.
func TestFull(t *testing.T) {
	pid := sleeper(t)
	for _, l := range []Limits{
		{Rules: 1 << 14, Blocks: 1, Mappings: 1 << 10, Processes: 10},
		{Rules: 1 << 14, Blocks: 1 << 12, Mappings: 1, Processes: 10},
		{Rules: 1 << 14, Blocks: 1 << 12, Mappings: 1 << 10, Processes: 0},
	} {
		maps := newFake()
		if err := New(maps, l).Follow(pid, 1); !errors.Is(err, ErrFull) {
			t.Errorf("%+v: error is %v", l, err)
		}
		for _, m := range maps.mappings {
			if int(m.First+m.Count) > l.Blocks {
				t.Errorf("%+v: mapping %+v", l, m)
			}
		}
	}
}

// A process that has ended makes room for others, as do the files that it alone had.
func TestSweep(t *testing.T) {
	maps := newFake()
	tables := New(maps, Limits{Rules: 1 << 14, Blocks: 1 << 12, Mappings: 8, Processes: 1})
	first := exec.Command("sleep", "100")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	pid := uint32(first.Process.Pid)
	for tables.processes[pid] == nil {
		if err := tables.Follow(pid, 1); err != nil {
			t.Fatal(err)
		}
	}
	first.Process.Kill()
	first.Wait()
	tables.swept = time.Time{}
	tables.makeRoom()
	if tables.processes[pid] != nil || len(maps.processes) != 0 || len(tables.files) != 0 {
		t.Errorf("left are %v and %d files", maps.processes, len(tables.files))
	}
	if left := tables.blocks.left(); left != 1<<12 {
		t.Errorf("%d blocks are left", left)
	}
	if err := tables.Follow(uint32(os.Getpid()+1<<22), 1); err == nil {
		t.Error("a process that is not there can be followed")
	}
}

// Places are given away once, and again only after a while.
func TestRanges(t *testing.T) {
	now := time.Now()
	r := newRanges(10)
	r.now = func() time.Time { return now }
	a, _ := r.take(4)
	b, _ := r.take(3)
	c, ok := r.take(3)
	if want := []span{{0, 4}, {4, 3}, {7, 3}}; !ok || !slices.Equal([]span{a, b, c}, want) {
		t.Fatalf("spans are %v, %v, %v", a, b, c)
	}
	if _, ok := r.take(1); ok {
		t.Error("there is no end")
	}
	r.give(b)
	r.give(a)
	if _, ok := r.take(1); ok || r.left() != 7 {
		t.Errorf("what was given back is given away at once; %d are left", r.left())
	}
	now = now.Add(rest)
	if s, ok := r.take(7); !ok || s != (span{0, 7}) {
		t.Errorf("span is %v", s)
	}
}
