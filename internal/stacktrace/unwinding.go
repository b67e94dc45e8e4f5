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

// unwinding creates the unwind tables for files. A nil unwinding does nothing.
type unwinding struct {
	tables *unwind.Tables
	bound  string // what limits the memory of tables, for messages
	notify func(error)
	stop   chan struct{}
	wake   chan struct{}
	ended  sync.WaitGroup

	mu         sync.Mutex
	requested  []*stack.File // files that occur in stacks
	prefetched []*stack.File // files that have been mapped and can occur in stacks
	queued     map[binary.KernelID]bool
	idle       sync.Cond // nothing is requested
	busy       bool      // a requested table is being created
	abandoned  bool      // no more tables are created

	began time.Time
	spent time.Duration // on prefetched files
}

// Setup sets the variables of programs for unwinding by tables. If user stacks are not unwound by
// tables, it sets the size of the maps to one entry.
func Setup(spec *ebpf.CollectionSpec, entries map[string]uint32, byTables bool) error {
	if !byTables {
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
	const minSize = 16 << 10
	return uint64(max(minSize, os.Getpagesize()))
}

// addressMask returns a mask of the bits that code addresses can have, from corescope's own
// mappings: libraries and the vDSO are at the end of the address space. Other bits of return
// addresses can be set on arm64 (pointer authentication), but not on amd64.
func addressMask() uint64 {
	const all = 1<<56 - 1
	own, err := binary.OwnExecutable()
	if err != nil || len(own) == 0 || runtime.GOARCH == "amd64" {
		return all
	}
	highest := uint64(0)
	for _, m := range own {
		if m.End <= all { // not mappings in the kernel's half, such as [vsyscall]
			highest = max(highest, m.End)
		}
	}
	return 1<<bits.Len64(highest) - 1
}

// newUnwinding starts the goroutine that creates tables in the maps of unwindtable.bpf.h. It calls
// notify for each file whose table does not fit.
func newUnwinding(objects *probe.Objects, sizes sizes, memory int64, notify func(error)) *unwinding {
	maps := objects.Maps
	m := &unwindMaps{
		sizes: sizes, rules: maps["unwind_rules"], slabs: maps["unwind_slabs"], files: maps["unwind_files"], await: objects.AwaitGracePeriod,
	}
	bound := fmt.Sprintf("--unwind-memory is %d MB", memory>>20)
	if bySlabs := int64(objects.OptionalDescriptors/2) * m.slabBytes(); bySlabs < memory {
		memory = bySlabs
		bound = fmt.Sprintf("the limit of open files allows %d MB: raise it with ulimit -n", memory>>20)
	}
	u := &unwinding{
		tables: unwind.New(m, m.limits(memory)), bound: bound, notify: notify, stop: make(chan struct{}), wake: make(chan struct{}, 1),
		queued: map[binary.KernelID]bool{}, began: time.Now(),
	}
	u.idle.L = &u.mu
	u.ended.Go(func() {
		objects.Guarded(u.run)()
		u.abandon() // after a panic: await must not wait
	})
	return u
}

// request requests the table of a file that occurs in a stack.
func (u *unwinding) request(f *stack.File) { u.queue(f, true) }

// prefetch requests the table of a file that was mapped and can occur in a stack.
func (u *unwinding) prefetch(f *stack.File) { u.queue(f, false) }

func (u *unwinding) queue(f *stack.File, isRequested bool) {
	if u == nil || f == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queued[f.ID] || u.abandoned {
		return
	}
	u.queued[f.ID] = true
	if isRequested {
		u.requested = append(u.requested, f)
	} else {
		u.prefetched = append(u.prefetched, f)
	}
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// await waits until all requested tables exist.
func (u *unwinding) await() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for !u.abandoned && (len(u.requested) > 0 || u.busy) {
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

// abandon ends the wait for requested tables, also for those that are requested later.
func (u *unwinding) abandon() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.abandoned = true
	u.idle.Broadcast()
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

// next creates a table, requested ones first. It returns false if there is nothing to do.
func (u *unwinding) next() bool {
	f, isRequested := u.dequeue()
	if f == nil {
		return false
	}
	begin := time.Now()
	err := u.add(f)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !isRequested {
		u.spent += time.Since(begin)
	}
	u.busy = false
	if len(u.requested) == 0 {
		u.idle.Broadcast()
	}
	if errors.Is(err, unwind.ErrFull) || errors.Is(err, unwind.ErrLarge) {
		u.notify(fmt.Errorf("%w: its functions are unwound by frame pointers (%s)", err, u.bound))
	}
	return true
}

// dequeue removes a file from the queues. It returns nil if there is nothing to do.
func (u *unwinding) dequeue() (f *stack.File, isRequested bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.stop:
		return nil, false
	default:
	}
	switch {
	case len(u.requested) > 0:
		f, u.requested, isRequested = u.requested[0], u.requested[1:], true
	case len(u.prefetched) > 0 && u.maySpend():
		f, u.prefetched = u.prefetched[0], u.prefetched[1:]
	default:
		for _, f := range u.prefetched { // their tables are created when stacks contain them
			delete(u.queued, f.ID)
		}
		u.prefetched = nil
		return nil, false
	}
	delete(u.queued, f.ID)
	u.busy = isRequested
	return f, isRequested
}

// maySpend reports whether CPU time may be spent on prefetched files: 20 ms, plus 0.5 % of the time
// since the start. Without its table, a stack of a file is incomplete before the table is requested.
func (u *unwinding) maySpend() bool {
	const initial, part = 20 * time.Millisecond, 200
	return u.spent < initial+time.Since(u.began)/part
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
	sizes
	rules, slabs, files *ebpf.Map
	// await waits until all programs that are running have ended.
	await func() error
	// blocks are the maps in slabs, by their index there.
	blocks []*ebpf.Map
}

func (m *unwindMaps) slabBytes() int64 { return int64(m.slabBlocks) * unwind.BlockBytes }

// limits converts the memory in bytes to limits. A file can use half of it, but at most
// limit.FrameRules rows.
func (m *unwindMaps) limits(memory int64) unwind.Limits {
	slabs := min(memory/m.slabBytes(), int64(m.slabs.MaxEntries()))
	blocks := int(slabs) * int(m.slabBlocks)
	return unwind.Limits{
		Rules: int(m.rules.MaxEntries()), Blocks: blocks, Files: int(m.files.MaxEntries()),
		Rows: min(blocks*unwind.LeafRows/2, limit.FrameRules), Levels: m.levels,
	}
}

// tableMemory returns the default memory for unwind tables on a machine with the given memory, in
// bytes. It is allocated on demand: Go, Java, node, Python, clang and rustc together used 27 MB.
func tableMemory(machine uint64) int64 {
	const part, minimum, maximum = 64, 64 << 20, 512 << 20
	return int64(min(max(machine/part, minimum), maximum))
}

func (m *unwindMaps) PutRule(at uint32, r unwind.Rule) error { return m.rules.Put(at, uint64(r)) }

func (m *unwindMaps) PutBlock(at uint32, block any) error {
	for uint32(len(m.blocks)) <= at/m.slabBlocks {
		if err := m.addSlab(); err != nil {
			return err
		}
	}
	return m.blocks[at/m.slabBlocks].Put(at%m.slabBlocks, block)
}

func (m *unwindMaps) addSlab() error {
	slab, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "unwind_slab", Type: ebpf.Array, KeySize: 4, ValueSize: unwind.BlockBytes, MaxEntries: m.slabBlocks,
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
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	return uint64(now.Nano())
}

func (m *unwindMaps) Close() error {
	var errs []error
	for _, b := range m.blocks {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// how is how a frame was found: enum unwind_how of unwindstep.bpf.h, and byEntry.
type how uint8

const (
	byFramePointer how = iota
	byTable
	byGo
	bySignal
	byCode   // by the instructions at the return address, in trampolines of CPython
	BySearch // by a search of the stack for a return address
	byEntry  // by the return address at the entry of the function
	// incomplete is not a frame: it ends a stack if the caller of the outermost frame was not found.
	incomplete how = 15
)

func (h how) String() string {
	return [...]string{"fp", "eh", "go", "signal", "code", "search", "entry"}[h]
}

// splitHow removes the enum unwind_how from the highest bits of addresses and returns it.
func splitHow(addrs []uint64, unwound bool) []how {
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
