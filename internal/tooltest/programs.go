package tooltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
)

// Programs are programs of a tool that are loaded without the tool and not attached.
type Programs struct {
	*ebpf.Collection
	t              testing.TB
	lost, counters *btf.Struct
}

// LoadPrograms loads the named programs of the object that load returns. set contains values of
// variables and can be nil.
func LoadPrograms(t testing.TB, load tool.Loader, set map[string]any, names ...string) *Programs {
	t.Helper()
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}); err != nil {
		t.Logf("raise RLIMIT_MEMLOCK, which limits the memory of maps before 5.11: %v", err)
	}
	Root(t)
	spec, err := load()
	if err != nil {
		t.Fatal(err)
	}
	all := spec.Programs
	spec.Programs = map[string]*ebpf.ProgramSpec{}
	for _, name := range names {
		if spec.Programs[name] = all[name]; all[name] == nil {
			t.Fatalf("the object has no program %s", name)
		}
	}
	for name, value := range set {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	if v := spec.Variables["observing"]; v != nil { // observing.bpf.h
		if err := v.Set(true); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range spec.Maps {
		// Before 6.1 (fba1a1c6c912) the kernel warns about tracing programs with hash maps that are
		// not preallocated.
		if m.Type == ebpf.Hash && m.Flags&unix.BPF_F_NO_PREALLOC != 0 {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
			m.MaxEntries = min(m.MaxEntries, 1024)
		}
	}
	p := &Programs{t: t}
	p.lost, _ = btf.UnderlyingType(spec.Maps["lost"].Value).(*btf.Struct)
	if m := spec.Maps["counters"]; m != nil {
		p.counters, _ = btf.UnderlyingType(m.Value).(*btf.Struct)
	}
	if p.Collection, err = ebpf.NewCollection(spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Run runs a raw tracepoint program in this thread, with the given arguments.
func (p *Programs) Run(name string, args ...uint64) {
	p.t.Helper()
	if _, err := p.Programs[name].Run(&ebpf.RunOptions{Context: args}); err != nil {
		p.t.Fatalf("run %s: %v", name, err)
	}
}

// Unobserved returns the number of events that the programs have counted as lost for this reason.
func (p *Programs) Unobserved() uint64 {
	p.t.Helper()
	return p.sum("lost", p.lost, "unobserved")
}

// Counter returns the value of a counter of the tool.
func (p *Programs) Counter(name string) uint64 {
	p.t.Helper()
	return p.sum("counters", p.counters, name)
}

func (p *Programs) sum(table string, members *btf.Struct, name string) (n uint64) {
	p.t.Helper()
	var cpus [][]byte
	if err := p.Maps[table].Lookup(uint32(0), &cpus); err != nil {
		p.t.Fatal(err)
	}
	for _, m := range members.Members {
		if m.Name != name {
			continue
		}
		for _, cpu := range cpus {
			n += binary.NativeEndian.Uint64(cpu[m.Offset.Bytes():])
		}
	}
	return n
}

// SleepingTask returns the address of the task_struct of a thread that sleeps until the test ends.
func SleepingTask(t testing.TB) uint64 {
	t.Helper()
	Root(t)
	type thread struct {
		task uint64
		tid  int
	}
	sleeper := make(chan thread)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		sleeper <- thread{currentTask(t), unix.Gettid()}
		<-done
	}()
	t.Cleanup(func() { close(done) })
	s := <-sleeper
	for sleeps := false; !sleeps && t.Context().Err() == nil; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", s.tid))
		if err != nil {
			t.Fatal(err)
		}
		sleeps = strings.Contains(string(stat), ") S ")
		time.Sleep(time.Millisecond)
	}
	return s.task
}

// currentTask returns the address of this thread's task_struct.
func currentTask(t testing.TB) (address uint64) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer m.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.FnGetCurrentTask.Call(),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.RFP, -16, asm.R1, asm.DWord),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -16),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnMapUpdateElem.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer prog.Close()
	if _, err := prog.Run(&ebpf.RunOptions{Context: []uint64{0}}); err != nil {
		t.Error(err)
	}
	if err := m.Lookup(uint32(0), &address); err != nil {
		t.Error(err)
	}
	return address
}

// OwnMap returns the map with this name that a tool in this process has created last: other processes
// can run the same tool. The caller closes it.
func OwnMap(t testing.TB, name string) (found *ebpf.Map) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	newest := -1
	for _, file := range files {
		id := mapID(file)
		if id <= newest {
			continue
		}
		m, err := ebpf.NewMapFromID(ebpf.MapID(id))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed in the meantime
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != name {
			m.Close()
			continue
		}
		found.Close()
		found, newest = m, id
	}
	if found == nil {
		t.Fatalf("no map %s in this process", name)
	}
	return found
}

// mapID returns the ID of the map that a file descriptor refers to, given its file in fdinfo, or -1.
func mapID(fdinfo string) int {
	text, _ := os.ReadFile(fdinfo) // the descriptor may have been closed
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "map_id:"); ok {
			if id, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
				return id
			}
		}
	}
	return -1
}
