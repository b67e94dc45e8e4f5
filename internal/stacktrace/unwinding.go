package stacktrace

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/unwind"
)

// unwinding creates the unwind tables of the files in stacks. A nil unwinding does nothing.
type unwinding struct {
	tables *unwind.Tables
	memory int64 // that tables may take, in bytes
	notify func(error)
	stop   chan struct{}
	wake   chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	wanted   []*stack.File // that stacks lead through
	expected []*stack.File // that were mapped, and may be wanted
	queued   map[binary.KernelID]bool
	idle     sync.Cond // nothing is wanted
	busy     bool

	began time.Time
	spent time.Duration // on files that were expected
}

// Setup sets the variables and map sizes for unwinding by tables, or minimizes its maps if user
// stacks are unwound by frame pointers.
func Setup(spec *ebpf.CollectionSpec, entries map[string]uint32, wanted bool) error {
	if !wanted {
		for _, name := range []string{"unwind_files", "unwind_slabs", "unwind_rules"} {
			entries[name] = 1
		}
		return nil
	}
	vars := map[string]any{
		"unwind_tables": true, "unwind_thread_size": threadSize(), "unwind_address_mask": addressMask(),
		"unwind_page_shift": uint32(bits.TrailingZeros(uint(os.Getpagesize()))),
	}
	for name, v := range vars {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("set variable %s: %w", name, err)
		}
	}
	return nil
}

// threadSize returns the size of a kernel stack: 16 KiB, or one page if that is larger.
func threadSize() uint64 {
	const least = 16 << 10
	return uint64(max(least, os.Getpagesize()))
}

// addressMask returns the bits that code addresses can have, derived from the own mappings:
// libraries and the vDSO are at the end of the address space. On amd64 addresses have no further
// bits.
func addressMask() uint64 {
	const all = 1<<56 - 1
	own, err := binary.OwnExecutable()
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

// newUnwinding creates tables in the maps of unwindtable.bpf.h. It calls notify for each file whose
// table does not fit.
func newUnwinding(objects *probe.Objects, memory int64, notify func(error)) *unwinding {
	maps := objects.Maps
	m := &unwindMaps{
		rules: maps["unwind_rules"], slabs: maps["unwind_slabs"], files: maps["unwind_files"], await: objects.AwaitGracePeriod,
	}
	u := &unwinding{
		tables: unwind.New(m, m.limits(memory)), memory: memory, notify: notify, stop: make(chan struct{}), wake: make(chan struct{}, 1),
		queued: map[binary.KernelID]bool{}, began: time.Now(),
	}
	u.idle.L = &u.mu
	u.ended.Go(u.run)
	return u
}

// want requests the table of a file that occurs in a stack.
func (u *unwinding) want(f *stack.File) { u.queue(f, true) }

// expect requests the table of a file that was mapped and may occur in a stack.
func (u *unwinding) expect(f *stack.File) { u.queue(f, false) }

func (u *unwinding) queue(f *stack.File, isWanted bool) {
	if u == nil || f == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queued[f.ID] {
		return
	}
	u.queued[f.ID] = true
	if isWanted {
		u.wanted = append(u.wanted, f)
	} else {
		u.expected = append(u.expected, f)
	}
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// await waits until all wanted tables exist.
func (u *unwinding) await() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.wanted) > 0 || u.busy {
		u.idle.Wait()
	}
}

func (u *unwinding) close() error {
	if u == nil {
		return nil
	}
	close(u.stop)
	u.ended.Wait()
	return u.tables.Close()
}

func (u *unwinding) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-u.stop:
			return
		case <-tick.C:
			u.tables.RetryRefused()
		case <-u.wake:
		}
		for u.next() {
		}
	}
}

// next creates one table, wanted ones first. It returns false if there is nothing to do.
func (u *unwinding) next() bool {
	f, isWanted := u.take()
	if f == nil {
		return false
	}
	begin := time.Now()
	err := u.add(f)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !isWanted {
		u.spent += time.Since(begin)
	}
	u.busy = false
	if len(u.wanted) == 0 {
		u.idle.Broadcast()
	}
	if errors.Is(err, unwind.ErrFull) || errors.Is(err, unwind.ErrLarge) {
		u.notify(fmt.Errorf("%w: its functions are unwound by frame pointers (--unwind-memory is %d MB)", err, u.memory>>20))
	}
	return true
}

// take removes a file from the queues.
func (u *unwinding) take() (f *stack.File, isWanted bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.stop:
		return nil, false
	default:
	}
	switch {
	case len(u.wanted) > 0:
		f, u.wanted, isWanted = u.wanted[0], u.wanted[1:], true
	case len(u.expected) > 0 && u.maySpend():
		f, u.expected = u.expected[0], u.expected[1:]
	default:
		for _, f := range u.expected { // they are made when they are wanted
			delete(u.queued, f.ID)
		}
		u.expected = nil
		return nil, false
	}
	delete(u.queued, f.ID)
	u.busy = true
	return f, isWanted
}

// maySpend reports whether there is CPU time for tables that may not be needed: 0.2 s, and 2 % of
// one CPU after that.
func (u *unwinding) maySpend() bool {
	const atOnce, part = 200 * time.Millisecond, 50
	return u.spent < atOnce+time.Since(u.began)/part
}

func (u *unwinding) add(f *stack.File) error {
	if u.tables.Has(f.ID) {
		return nil
	}
	if f.ID.Kind == binary.KindVDSO {
		return u.tables.Add(f.ID, "", f.Path)
	}
	opened, err := f.Open()
	if err != nil {
		return err
	}
	defer opened.Close()
	return u.tables.Add(f.ID, fmt.Sprintf("/proc/self/fd/%d", opened.Fd()), f.Path)
}

// unwindMaps are the maps of unwindtable.bpf.h.
type unwindMaps struct {
	rules, slabs, files *ebpf.Map
	// await returns once no program runs that was running before.
	await func() error
	// blocks are the maps in slabs, by their place there.
	blocks []*ebpf.Map
}

// slabBlocks is UNWIND_SLAB_BLOCKS of unwindtable.bpf.h.
const slabBlocks = 512

// limits returns what fits into the memory. One file may take half of it, up to the number of rules
// that are read of a file.
func (m *unwindMaps) limits(memory int64) unwind.Limits {
	slabs := min(memory/(slabBlocks*unwind.BlockBytes), int64(m.slabs.MaxEntries()))
	blocks := int(slabs) * slabBlocks
	return unwind.Limits{
		Rules: int(m.rules.MaxEntries()), Blocks: blocks, Files: int(m.files.MaxEntries()),
		Rows: min(blocks*unwind.LeafRows/2, limit.FrameRules),
	}
}

// tableMemory returns the memory for unwind tables on a machine with that much memory, in bytes. It is
// allocated as tables are made: Go, Java, node, Python, clang and rustc at once took 27 MB.
func tableMemory(machine uint64) int64 {
	const part, least, most = 64, 64 << 20, 512 << 20
	return int64(min(max(machine/part, least), most))
}

func (m *unwindMaps) PutRule(at uint32, r unwind.Rule) error { return m.rules.Put(at, uint64(r)) }

func (m *unwindMaps) PutBlock(at uint32, block any) error {
	for uint32(len(m.blocks)) <= at/slabBlocks {
		if err := m.addSlab(); err != nil {
			return err
		}
	}
	return m.blocks[at/slabBlocks].Put(at%slabBlocks, block)
}

func (m *unwindMaps) addSlab() error {
	slab, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "unwind_slab", Type: ebpf.Array, KeySize: 4, ValueSize: unwind.BlockBytes, MaxEntries: slabBlocks,
	})
	if err != nil {
		return err
	}
	if err := m.slabs.Put(uint32(len(m.blocks)), slab); err != nil {
		return errors.Join(err, slab.Close())
	}
	m.blocks = append(m.blocks, slab)
	return nil
}

func (m *unwindMaps) PutFile(id binary.KernelID, f *unwind.File) error { return m.files.Put(&id, f) }

func (m *unwindMaps) DropFile(id binary.KernelID) error { return m.files.Delete(&id) }

func (m *unwindMaps) Used(id binary.KernelID) (uint64, error) {
	var f unwind.File
	err := m.files.Lookup(&id, &f)
	return f.Used, err
}

func (m *unwindMaps) Settle() error { return m.await() }

func (m *unwindMaps) Now() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // there is this clock
	return uint64(now.Nano())
}

func (m *unwindMaps) Close() error {
	var errs []error
	for _, b := range m.blocks {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// how is how a frame was found: enum unwind_how of unwindstep.bpf.h, extended by user space.
type how uint8

const (
	byFramePointer how = iota
	byTable
	byGo
	bySignal
	byCode   // that follows
	BySearch // of the stack for a return address
	byEntry  // of the function
	// incomplete marks the end of a stack whose outermost frame was not found: no frame.
	incomplete how = 15
)

func (h how) String() string {
	return [...]string{"fp", "eh", "go", "signal", "code", "search", "entry"}[h]
}

// ways removes from addresses how they were found, and returns it.
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
