package tool

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"

	"github.com/cilium/ebpf"

	mapped "github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/unwind"
)

// unwinding follows the processes whose stacks come, and has tables made of how to walk
// these. A nil one does nothing.
type unwinding struct {
	tables *unwind.Tables
	notify func(error)
	noted  bool // that there is no more room
	stop   chan struct{}
	wake   chan struct{}
	ended  sync.WaitGroup

	begin func() // closes begun, once
	begun chan struct{}

	mu      sync.Mutex
	known   map[uint32]bool   // processes that were asked for
	pending map[uint32]uint32 // those to be looked at, with their address spaces
}

// maxKnown bounds the processes that mappings are heard of.
const maxKnown = 1 << 16

// setUnwinding tells the programs whether there are tables, and of this machine what they
// cannot see.
func setUnwinding(spec *ebpf.CollectionSpec, p *Plan, wanted bool) error {
	if !wanted {
		for _, name := range []string{"unwind_processes", "unwind_mappings", "unwind_blocks", "unwind_rules"} {
			p.MapEntries[name] = 1
		}
		return nil
	}
	vars := map[string]any{"unwind_tables": true, "unwind_thread_size": threadSize(), "unwind_address_mask": addressMask()}
	for name, v := range vars {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("set variable %s: %w", name, err)
		}
	}
	return nil
}

// threadSize is that of a task's stack in the kernel: 16 KiB, or a larger page.
func threadSize() uint64 {
	const least = 16 << 10
	return uint64(max(least, os.Getpagesize()))
}

// addressMask has the bits that addresses of code have, seen by those of our own: libraries
// and the vDSO lie at the end of an address space. On amd64 nothing is above an address.
func addressMask() uint64 {
	const all = 1<<56 - 1
	own, err := mapped.Executable(uint32(os.Getpid()))
	if err != nil || len(own) == 0 || runtime.GOARCH == "amd64" {
		return all
	}
	highest := uint64(0)
	for _, m := range own {
		if m.End <= all { // but for what the kernel has at its own end
			highest = max(highest, m.End)
		}
	}
	return 1<<bits.Len64(highest) - 1
}

// newUnwinding fills the maps of unwind.bpf.h. It tells notify once when they are full.
func newUnwinding(maps map[string]*ebpf.Map, notify func(error)) *unwinding {
	m := &unwindMaps{
		rules: maps["unwind_rules"], blocks: maps["unwind_blocks"],
		mappings: maps["unwind_mappings"], processes: maps["unwind_processes"],
	}
	u := &unwinding{
		tables: unwind.New(m, m.limits()), notify: notify, stop: make(chan struct{}), wake: make(chan struct{}, 1),
		begun: make(chan struct{}), known: map[uint32]bool{}, pending: map[uint32]uint32{},
	}
	u.begin = sync.OnceFunc(func() { close(u.begun) })
	u.ended.Go(u.run)
	return u
}

// follow has tables made for a process, whose address space is that, or 0 if it is not known.
func (u *unwinding) follow(pid, space uint32) {
	if u == nil || pid == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.known) >= maxKnown {
		clear(u.known)
	}
	u.known[pid] = true
	u.ask(pid, space)
}

// heard has them made anew as the process has mapped something.
func (u *unwinding) heard(pid uint32) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known[pid] {
		u.ask(pid, 0)
	}
}

func (u *unwinding) ask(pid, space uint32) {
	if space == 0 {
		space = u.pending[pid]
	}
	u.pending[pid] = space
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// await returns when there are tables of the process that was asked for first, if any was.
func (u *unwinding) await() {
	if u == nil {
		return
	}
	u.mu.Lock()
	isAsked := len(u.known) > 0
	u.mu.Unlock()
	if isAsked {
		<-u.begun
	}
}

func (u *unwinding) close() {
	if u == nil {
		return
	}
	close(u.stop)
	u.ended.Wait()
}

func (u *unwinding) run() {
	for {
		select {
		case <-u.stop:
			return
		case <-u.wake:
		}
		for u.next() {
		}
	}
}

// next looks at one of the processes, if there are any.
func (u *unwinding) next() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.stop:
		return false
	default:
	}
	for pid, space := range u.pending {
		delete(u.pending, pid)
		u.mu.Unlock()
		u.made(u.tables.Follow(pid, space))
		u.begin()
		u.mu.Lock()
		return true
	}
	return false
}

// made tells that there is no more room. Of a process that cannot be looked at its frames
// will tell.
func (u *unwinding) made(err error) {
	if !errors.Is(err, unwind.ErrFull) || u.noted {
		return
	}
	u.noted = true
	u.notify(fmt.Errorf("walk some stacks by frame pointers alone: %w", err))
}

// unwindMaps are the maps of unwind.bpf.h.
type unwindMaps struct{ rules, blocks, mappings, processes *ebpf.Map }

func (m *unwindMaps) limits() unwind.Limits {
	return unwind.Limits{
		Rules: int(m.rules.MaxEntries()), Blocks: int(m.blocks.MaxEntries()),
		Mappings: int(m.mappings.MaxEntries()), Processes: int(m.processes.MaxEntries()),
	}
}

func (m *unwindMaps) PutRule(at uint32, r unwind.Rule) error { return m.rules.Put(at, uint64(r)) }

func (m *unwindMaps) PutBlock(at uint32, b *unwind.Block) error { return m.blocks.Put(at, b) }

func (m *unwindMaps) PutMapping(at uint32, p *unwind.Mapping) error { return m.mappings.Put(at, p) }

func (m *unwindMaps) PutProcess(pid uint32, p *unwind.Process) error { return m.processes.Put(pid, p) }

func (m *unwindMaps) DropProcess(pid uint32) error {
	err := m.processes.Delete(pid)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// how is how a frame was found: enum unwind_how of unwind.bpf.h, and what user space adds.
type how uint8

const (
	byFramePointer how = iota
	byTable
	byGo
	bySignal
	byCode  // that follows
	byEntry // of the function
)

func (h how) String() string { return [...]string{"fp", "eh", "go", "signal", "code", "entry"}[h] }

// ways takes out of the addresses how they were found.
func ways(addrs []uint64, unwound bool) []how {
	const shift = 60
	all := make([]how, len(addrs))
	if !unwound {
		return all
	}
	for i := range addrs {
		all[i] = how(addrs[i] >> shift)
		addrs[i] &= 1<<shift - 1
	}
	return all
}
