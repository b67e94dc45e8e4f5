// Package stacktrace reads the stack traces that BPF programs send, symbolizes them, and provides
// the unwind tables that the programs need.
package stacktrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	mapped "github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// StackID identifies a stack in programs (stacks.bpf.h); 0 means no stack.
type StackID uint64

// stackHead mirrors struct stack_head, which the addresses follow.
type stackHead struct {
	Time uint64 `btf:"time_ns"`
	ID   StackID
	PID  uint32
	// Space is a number of the address space: it differs before and after an exec, and between
	// processes with the same PID.
	Space uint32
	// Caller is the return address of the innermost function, if the addresses do not contain it.
	Caller uint64
	// Unwound is 1 if the highest bits of addresses are an enum unwind_how.
	Unwound uint32
	// Frames is the number of addresses. They are followed by the mappings that contain them, if
	// the stack was unwound by tables.
	Frames uint32
	// Unknown is the number of mappings of files that have no unwind table yet.
	Unknown uint32
	// Urgent is not 0 if the process is needed to symbolize the stack; only programs use it.
	Urgent uint32
}

const stackHeadSize = int(unsafe.Sizeof(stackHead{}))

// Traces are the stacks that programs have sent. They are symbolized when they are received, which
// can be after the process has exited.
type Traces struct {
	sizes     sizes
	exact     bool  // group by address, not by function
	noProc    bool  // /proc belongs to another PID namespace than the PIDs that programs send
	memory    int64 // for unwind tables, in bytes
	depth     int   // maximum number of frames
	fpDepth   int   // the same for stacks that the kernel unwinds by frame pointer
	kernel    *stack.Kernel
	processes *stack.Processes
	watch     *mapped.Watch // nil if mmap records cannot be read
	watched   sync.WaitGroup
	unwinding *unwinding // nil if user stacks are unwound by frame pointers only
	queue     chan *rawStack
	guarded   func(func()) func() // probe.Objects.Guarded
	notify    func(error)
	settled   settled
	// received and symbolized are the numbers of stacks that have been put in the queue, and of those
	// that are in the cache.
	received, symbolized atomic.Uint64

	// Used only by the goroutine that symbolizes.
	frames []stack.Frame

	Cache *traceCache
}

// rawStack is a stack before symbolization.
type rawStack struct {
	id    StackID
	pid   uint32
	time  uint64 // CLOCK_MONOTONIC in ns
	addrs []uint64
	code  []stack.Code // mappings that contain the addresses, if it was unwound by tables
	how   []how        // how each frame was found; empty for kernel stacks
	depth int          // maximum number of frames
	// incomplete is set if the caller of the outermost frame was not found.
	incomplete bool
}

// Machine are properties of the machine.
type Machine struct {
	Kernel  *stack.Kernel   // symbolizes kernel addresses
	Limits  *limit.Reporter // reports input of processes that exceeds a limit
	HasProc bool            // /proc belongs to the PID namespace of corescope
}

// queued is the maximum number of stacks that wait to be symbolized.
const queued = 1 << 14

// New returns an empty set of traces of the programs in the object.
func New(spec *ebpf.CollectionSpec, o *Frames, u *UserStacks, m Machine) (*Traces, error) {
	sizes, err := readSizes(spec)
	if err != nil {
		return nil, err
	}
	processes, err := u.processes()
	if err != nil {
		return nil, err
	}
	processes.SetReporter(m.Limits)
	return &Traces{
		sizes: sizes, exact: o.exact(), noProc: !m.HasProc, memory: u.tableMemory(),
		depth: int(o.Depth), fpDepth: min(int(o.Depth), system.StackDepth("/")),
		kernel: m.Kernel, processes: processes, Cache: newTraceCache(cachedTraces),
	}, nil
}

// Open is called before hooks are attached. If tables is set, user stacks are unwound by tables. Those
// for the files of process pid exist when Open returns, so that its first stacks are complete. If pid is
// 0, the run is system-wide, and files that are mapped already are opened. notify is called for each file
// whose table does not fit.
func (t *Traces) Open(objects *probe.Objects, pid uint32, tables bool, notify func(error)) {
	t.processes.SetMaxFiles(objects.OptionalDescriptors / 2)
	t.guarded, t.notify = objects.Guarded, notify
	if tables {
		t.unwinding = newUnwinding(objects, t.sizes, t.memory, notify)
		t.requestProcess(pid)
	}
	t.watchMmaps()
	if tables && pid == 0 && !t.noProc {
		t.openMapped() // after the watch, so that no file is missed in between
	}
	t.unwinding.await()
}

// requestProcess requests tables for the files that a process maps.
func (t *Traces) requestProcess(pid uint32) {
	if pid == 0 {
		return
	}
	maps, _ := mapped.Executable(pid) // on error, tables are created when stacks are received
	for i := range maps {
		t.unwinding.request(t.processes.FileOfMmap(&maps[i]))
	}
}

// watchMmaps reads mmap records, so that processes that exit early can be symbolized. If that
// fails, frames of these processes have the reason "exited".
func (t *Traces) watchMmaps() {
	if t.noProc {
		return
	}
	w, err := mapped.NewWatch()
	if err != nil {
		return
	}
	t.watch = w
	w.Exec = func(pid uint32, at uint64) { t.processes.RecordExec(int(pid), at) }
	t.processes.SetSettle(t.settleTo)
	t.watched.Go(t.guarded(func() {
		_ = w.Run(func(m *mapped.Mapped) {
			t.unwinding.prefetch(t.processes.FileOfMmap(m))
			t.processes.RecordMmap(int(m.PID), stack.Mapping{Start: m.Start, End: m.End, Offset: m.Offset, Inode: m.Inode, Path: m.Path, Time: m.Time})
		}, func() {})
	}))
}

// Trace returns the stack with an ID that programs have counted. If the stack was not received, the
// trace has the single frame [lost stack].
//
// Functions that a JIT compiler has named shortly before the sample are looked up here, because the
// goroutine that symbolizes reads the files of JIT compilers less often.
func (t *Traces) Trace(id StackID) value.Trace {
	if id == 0 {
		return value.Trace{}
	}
	if raw := t.Cache.takeLate(id); raw != nil {
		t.processes.Update(int(raw.pid), raw.time)
		s, frames := t.symbolizeInto(nil, nil, raw)
		t.Cache.putStack(id, s, t.originOf(raw, frames), nil)
	}
	return t.Cache.intact(id, t.isReplaced)
}

// Read reads stacks until the reader is stopped, and returns when all are symbolized. Symbolization
// can be slow, so it runs in another goroutine; files are opened when a stack is received.
func (t *Traces) Read(r ring.Reader) error {
	t.queue = make(chan *rawStack, queued)
	var symbolizer sync.WaitGroup
	symbolizer.Go(func() {
		t.guarded(t.symbolizeAll)()
		for range t.queue { // after a panic: Read must not wait
		}
	})
	defer symbolizer.Wait()
	defer close(t.queue)
	for {
		sample, err := r.Read()
		switch {
		case errors.Is(err, ring.ErrIdle):
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read stacks: %w", err)
		default:
			t.enqueue(sample)
		}
	}
}

// enqueue queues a stack for symbolization.
func (t *Traces) enqueue(sample []byte) {
	if raw := t.parse(sample); raw != nil {
		t.received.Add(1)
		t.queue <- raw
	}
}

// Append symbolizes a user stack that is part of an event (stackwalk.bpf.h) and appends its frames.
func (t *Traces) Append(dst value.Stack, sample []byte) value.Stack {
	raw := t.parse(sample)
	if raw == nil {
		return dst
	}
	s, _ := t.symbolize(dst, raw)
	return s
}

// AppendAddress symbolizes an address in a process and appends its frames. The process is numbered as
// in /proc; at is a time (CLOCK_MONOTONIC) when the process used the address.
func (t *Traces) AppendAddress(dst value.Stack, pid uint32, addr, at uint64) value.Stack {
	raw := &rawStack{pid: pid, addrs: []uint64{addr}, depth: 2, time: at}
	t.processes.Prepare(int(pid), 0, nil)
	s, _ := t.symbolize(dst, raw)
	return s
}

// parse parses a stack, and prepares its process and files for symbolization. It returns nil if the
// stack is malformed.
func (t *Traces) parse(sample []byte) *rawStack {
	if len(sample) < stackHeadSize {
		return nil
	}
	head := headOf(sample)
	raw := &rawStack{id: head.ID, pid: head.PID, time: head.Time, depth: t.fpDepth}
	if t.noProc && raw.pid != 0 {
		raw.pid |= outside
	}
	if head.Unwound != 0 {
		raw.depth = t.depth
	}
	sample = sample[stackHeadSize:]
	raw.addrs = make([]uint64, 0, head.Frames+1)
	for ; len(sample) >= 8 && len(raw.addrs) < int(head.Frames); sample = sample[8:] {
		raw.addrs = append(raw.addrs, binary.NativeEndian.Uint64(sample))
	}
	if raw.pid == 0 {
		return raw
	}
	raw.how = splitHow(raw.addrs, head.Unwound != 0)
	if last := len(raw.how) - 1; last >= 0 && raw.how[last] == incomplete {
		raw.addrs, raw.how, raw.incomplete = raw.addrs[:last], raw.how[:last], true
	}
	if head.Unwound != 0 {
		raw.code = codeOf(sample)
	}
	if head.Caller != 0 && len(raw.addrs) > 0 {
		raw.addrs = slices.Insert(raw.addrs, 1, head.Caller)
		raw.how = slices.Insert(raw.how, 1, byEntry)
	}
	if !raw.isOutside() {
		t.prepare(raw, head)
	}
	return raw
}

// headOf decodes the head of a stack.
func headOf(b []byte) *stackHead {
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	half := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	return &stackHead{
		Time: word(0), ID: StackID(word(8)), PID: half(16), Space: half(20), Caller: word(24),
		Unwound: half(32), Frames: half(36), Unknown: half(40),
	}
}

// codeOf decodes the mappings of a stack.
func codeOf(b []byte) []stack.Code {
	const size = 48
	code := make([]stack.Code, len(b)/size)
	for i := range code {
		c, m := &code[i], b[i*size:]
		word := func(at int) uint64 { return binary.NativeEndian.Uint64(m[at:]) }
		half := func(at int) uint32 { return binary.NativeEndian.Uint32(m[at:]) }
		c.Start, c.End, c.Offset = word(0), word(8), word(16)
		c.File = mapped.KernelID{Inode: word(24), Changed: word(32), Device: half(40), Kind: mapped.Kind(half(44))}
	}
	return code
}

// prepare opens the files of a stack, and requests their tables if some are missing.
func (t *Traces) prepare(raw *rawStack, head *stackHead) {
	t.processes.Prepare(int(raw.pid), head.Space, raw.code)
	for i := range raw.code {
		if f := t.processes.Find(int(raw.pid), &raw.code[i]); head.Unknown > 0 {
			t.unwinding.request(f)
		}
	}
}

func (t *Traces) symbolizeAll() {
	for raw := range t.queue {
		s, isLate := t.symbolize(nil, raw)
		late := raw
		if !isLate {
			late = nil
		}
		t.Cache.putStack(raw.id, s, t.originOf(raw, t.frames), late)
		t.symbolized.Add(1)
	}
}

// symbolize symbolizes a stack and appends its frames. isLate is set if a JIT compiler can have named
// some of them since its files were read.
func (t *Traces) symbolize(dst value.Stack, raw *rawStack) (s value.Stack, isLate bool) {
	s, t.frames = t.symbolizeInto(dst, t.frames[:0], raw)
	return s, slices.ContainsFunc(t.frames, func(f stack.Frame) bool { return f.Late })
}

// symbolizeInto is symbolize with a buffer for frames, which it returns. It can be called by any
// goroutine.
func (t *Traces) symbolizeInto(dst value.Stack, frames []stack.Frame, raw *rawStack) (value.Stack, []stack.Frame) {
	if raw.isOutside() {
		frames = outsideFrames(frames, raw.addrs)
	} else if raw.pid == 0 {
		frames = t.kernel.Append(frames, raw.addrs)
		frames = frames[ProgramFrames(frames):]
	} else {
		frames = t.processes.AppendCode(frames, int(raw.pid), raw.addrs, raw.code, raw.time)
		// If the process has exited, its mmap records may not have been read yet.
		if t.watch != nil && slices.ContainsFunc(frames, hasExited) && t.watch.Sync() == nil {
			frames = t.processes.AppendCode(frames[:0], int(raw.pid), raw.addrs, raw.code, raw.time)
		}
	}
	t.noticeReplaced(raw, frames)
	dst = slices.Grow(dst, len(frames)+1)
	address := 0 // index in raw; inlined functions have the address of the function that contains them
	for i := range frames {
		f := valueFrame(&frames[i], t.exact)
		if t.exact && address > 0 && address < len(raw.how) {
			f.How = raw.how[address].String()
		}
		if !f.Inlined {
			address++
		}
		dst = append(dst, f)
	}
	switch {
	case raw.incomplete:
		dst = append(dst, value.Frame{Symbol: "[incomplete]"})
	case len(raw.addrs) >= raw.depth:
		dst = append(dst, value.Frame{Symbol: "[truncated]", Kernel: raw.pid == 0})
	}
	return dst, frames
}

// outside is set in the PID of processes that are not in the PID namespace of /proc (STACK_OUTSIDE
// of stackwalk.bpf.h).
const outside = 1 << 31

// isOutside reports whether the process is not in the PID namespace of /proc.
func (r *rawStack) isOutside() bool { return r.pid&outside != 0 }

// outsideFrames appends frames without symbols, for a process that is not in /proc.
func outsideFrames(frames []stack.Frame, addrs []uint64) []stack.Frame {
	for _, addr := range addrs {
		if addr == 0 {
			break
		}
		frames = append(frames, stack.Frame{Addr: addr, Reason: stack.Outside})
	}
	return frames
}

func hasExited(f stack.Frame) bool { return f.Reason == stack.Exited }

// valueFrame converts a frame for output. Unless exact is set, it removes the address, so that all
// addresses in a function have the same frame.
func valueFrame(f *stack.Frame, exact bool) value.Frame {
	v := value.Frame{
		Symbol: f.Name, Module: f.Module, Offset: f.Offset, Address: value.Address(f.Addr),
		BuildID: f.BuildID, Reason: f.Reason.String(), Kernel: f.Kernel,
		File: f.File, Line: uint32(f.Line), Inlined: f.Inlined,
	}
	if !exact && v.Symbol != "" {
		v.Offset, v.Address, v.BuildID = 0, 0, ""
	}
	if !exact && v.Module == "" { // not an address of code: the value differs between stacks
		v.Offset, v.Address = 0, 0
	}
	return v
}

// Await waits until stacks have been received and symbolized. It waits at most 200 ms for those that
// have not been received, because some can be lost, and then until those that have been received are
// symbolized: the symbols of large programs take time to read.
func (t *Traces) Await(ids map[StackID]bool) {
	t.Settle()
	const step, timeout, most = 5 * time.Millisecond, 200 * time.Millisecond, 30 * time.Second
	wait := func(limit time.Duration, isPossible func() bool) {
		for deadline := time.Now().Add(limit); !t.Cache.HasAll(ids) && isPossible() && time.Now().Before(deadline); {
			time.Sleep(step)
		}
	}
	wait(timeout, func() bool { return true })
	received := t.received.Load()
	wait(most, func() bool { return t.symbolized.Load() < received })
}

// Close stops reading mmap records and closes all files and tables.
func (t *Traces) Close() error {
	errs := []error{t.unwinding.close()}
	if t.watch != nil {
		errs = append(errs, t.watch.Stop())
		t.watched.Wait()
		errs = append(errs, t.watch.Close())
	}
	return errors.Join(append(errs, t.processes.Close())...)
}
