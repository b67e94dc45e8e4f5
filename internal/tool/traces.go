package tool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"sync"
	"time"

	mapped "github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// StackID is the number that programs know a stack by (stacks.bpf.h), 0 for no stack.
type StackID uint64

// stackHead is struct stack_head, which addresses follow.
type stackHead struct {
	Time uint64 `btf:"time_ns"`
	ID   StackID
	PID  uint32
	// Space is another one after an exec, and for another process of the same number.
	Space uint32
	// Caller is that of the innermost function, where the addresses lack it.
	Caller uint64
	// Unwound is 1 where addresses have in their highest bits how they were found.
	Unwound uint32
	_       uint32 `btf:"pad"`
}

const stackHeadSize = 40

// Traces are the stacks that programs have sent, with the names that their addresses had
// then. Processes may have ended since.
type Traces struct {
	exact     bool // addresses in a function are told apart
	depth     int  // at which stacks end
	fpDepth   int  // the same where the kernel walks
	kernel    *stack.Kernel
	processes *stack.Processes
	watch     *mapped.Watch // nil where it cannot be had
	watched   sync.WaitGroup
	unwinding *unwinding // nil where stacks are walked by frame pointers alone
	queue     chan *rawStack
	seen      map[uint32]uint32 // address spaces that are remembered, by process; for who reads

	// For who names.
	frames []stack.Frame
	text   []byte

	mu   sync.Mutex
	byID map[StackID]value.Trace
	seed maphash.Seed
	same map[uint64][]value.Trace // by a hash of what they have in them
}

// rawStack is a stack as it was sent.
type rawStack struct {
	id    StackID
	pid   uint32
	time  uint64 // CLOCK_MONOTONIC in ns
	addrs []uint64
	how   []how // the frames were found, but those of the kernel
	depth int   // at which it would have ended
}

// queued is how many stacks may wait for their names.
const queued = 1 << 14

func newTraces(o *Frames, u *UserStacks, env *Env) (*Traces, error) {
	processes, err := u.processes()
	if err != nil {
		return nil, err
	}
	return &Traces{
		exact: o.exact(), depth: int(o.Depth), fpDepth: min(int(o.Depth), system.StackDepth("/")), kernel: env.symbols, processes: processes,
		seen: map[uint32]uint32{},
		byID: map[StackID]value.Trace{}, seed: maphash.MakeSeed(), same: map[uint64][]value.Trace{},
	}, nil
}

// open is called before anything is attached. tables tells that stacks of processes are
// walked by these.
func (t *Traces) open(s *session, tables bool) {
	if tables {
		t.unwinding = newUnwinding(s.objects.Maps, func(err error) {
			fmt.Fprintf(s.errOut, "%s: %v\n", s.tool.Name, err)
		})
		t.unwinding.follow(s.pid, 0)
	}
	t.listen()
}

// listen hears of mappings as they are made, for processes that end before they can be
// looked at. Without it the frames of these say that they have.
func (t *Traces) listen() {
	w, err := mapped.NewWatch()
	if err != nil {
		return
	}
	t.watch = w
	t.watched.Go(func() {
		_ = w.Run(func(m *mapped.Mapped) {
			t.unwinding.heard(m.PID)
			t.processes.Heard(int(m.PID), stack.Mapping{Start: m.Start, End: m.End, Offset: m.Offset, Inode: m.Inode, Path: m.Path})
		}, func() {})
	})
}

// Of returns a stack by its number. One that never came has one frame that says so.
func (t *Traces) Of(id StackID) value.Trace {
	if id == 0 {
		return value.Trace{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if trace, ok := t.byID[id]; ok {
		return trace
	}
	return t.intern(value.Stack{{Symbol: "[lost stack]"}})
}

// read takes all stacks that come, until the reader is stopped, and returns when they have
// their names. These take a while where symbols are read first, so the mappings of a
// process are noted at once.
func (t *Traces) read(r ring.Reader) error {
	t.queue = make(chan *rawStack, queued)
	var names sync.WaitGroup
	names.Go(t.nameAll)
	defer names.Wait()
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
			t.take(sample)
		}
	}
}

// take has a stack named.
func (t *Traces) take(sample []byte) {
	if raw := t.parse(sample); raw != nil {
		t.queue <- raw
	}
}

// Append names the frames of a stack of a process that came within an event
// (stackwalk.bpf.h), and appends them.
func (t *Traces) Append(dst value.Stack, sample []byte) value.Stack {
	raw := t.parse(sample)
	if raw == nil {
		return dst
	}
	return t.name(dst, raw)
}

// parse reads a stack, or returns nil if it is none. Of a process that is seen first it
// notes the mappings.
func (t *Traces) parse(sample []byte) *rawStack {
	if len(sample) < stackHeadSize {
		return nil
	}
	raw := &rawStack{id: StackID(binary.NativeEndian.Uint64(sample[8:])), pid: binary.NativeEndian.Uint32(sample[16:]), time: binary.NativeEndian.Uint64(sample)}
	if space := binary.NativeEndian.Uint32(sample[20:]); raw.pid != 0 && t.seen[raw.pid] != space {
		t.seen[raw.pid] = space
		t.unwinding.follow(raw.pid, space)
		_ = t.processes.Remember(int(raw.pid)) // its frames will say why, if that fails
	}
	unwound := binary.NativeEndian.Uint32(sample[32:]) != 0
	raw.depth = t.fpDepth
	if unwound {
		raw.depth = t.depth
	}
	raw.addrs = make([]uint64, 0, len(sample)/8)
	for b := sample[stackHeadSize:]; len(b) >= 8; b = b[8:] {
		raw.addrs = append(raw.addrs, binary.NativeEndian.Uint64(b))
	}
	if raw.pid != 0 {
		raw.how = ways(raw.addrs, unwound)
	}
	if caller := binary.NativeEndian.Uint64(sample[24:]); caller != 0 && len(raw.addrs) > 0 {
		raw.addrs = slices.Insert(raw.addrs, 1, caller)
		raw.how = slices.Insert(raw.how, 1, byEntry)
	}
	return raw
}

func (t *Traces) nameAll() {
	for raw := range t.queue {
		s := t.name(nil, raw)
		t.mu.Lock()
		t.byID[raw.id] = t.intern(s)
		t.mu.Unlock()
	}
}

// name appends the frames of the stack.
func (t *Traces) name(dst value.Stack, raw *rawStack) value.Stack {
	if raw.pid == 0 {
		t.frames = t.kernel.Append(t.frames[:0], raw.addrs)
		t.frames = t.frames[programFrames(t.frames):]
	} else {
		t.frames = t.processes.AppendAt(t.frames[:0], int(raw.pid), raw.addrs, raw.time)
		// Of a process that has ended, what is heard of it may be on its way still.
		if t.watch != nil && slices.ContainsFunc(t.frames, isOfEnded) && t.watch.Sync() == nil {
			t.frames = t.processes.AppendAt(t.frames[:0], int(raw.pid), raw.addrs, raw.time)
		}
	}
	dst = slices.Grow(dst, len(t.frames)+1)
	address := 0 // of raw; functions that stand in others share theirs
	for i := range t.frames {
		f := valueFrame(&t.frames[i], t.exact)
		if t.exact && address > 0 && address < len(raw.how) {
			f.How = raw.how[address].String()
		}
		if !f.Inlined {
			address++
		}
		dst = append(dst, f)
	}
	if len(raw.addrs) >= raw.depth {
		dst = append(dst, value.Frame{Symbol: "[truncated]", Kernel: raw.pid == 0})
	}
	return dst
}

func isOfEnded(f stack.Frame) bool { return f.Reason == stack.Exited }

// valueFrame is a frame as it is shown. One of a function is the same for each of its
// addresses unless these are to be exact.
func valueFrame(f *stack.Frame, exact bool) value.Frame {
	v := value.Frame{
		Symbol: f.Name, Module: f.Module, Offset: f.Offset, Address: value.Address(f.Addr),
		BuildID: f.BuildID, Reason: f.Reason.String(), Kernel: f.Kernel,
		File: f.File, Line: uint32(f.Line), Inlined: f.Inlined,
	}
	if !exact && v.Symbol != "" {
		v.Offset, v.Address, v.BuildID = 0, 0, ""
	}
	if !exact && v.Module == "" { // nothing is there: it is no address, but what a register held
		v.Offset, v.Address = 0, 0
	}
	return v
}

// intern returns the trace of all stacks that are the same.
func (t *Traces) intern(s value.Stack) value.Trace {
	t.text = s.AppendJSON(t.text[:0])
	hash := maphash.Bytes(t.seed, t.text)
	for _, trace := range t.same[hash] {
		if slices.Equal(trace.Frames(), s) {
			return trace
		}
	}
	trace := value.NewTrace(s)
	t.same[hash] = append(t.same[hash], trace)
	return trace
}

// await returns when the stacks have been read, as far as they come at all.
func (t *Traces) await(ids map[StackID]bool) {
	const step, most = 5 * time.Millisecond, 200 * time.Millisecond
	for deadline := time.Now().Add(most); t.lacks(ids) && time.Now().Before(deadline); {
		time.Sleep(step)
	}
}

func (t *Traces) lacks(ids map[StackID]bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range ids {
		if _, ok := t.byID[id]; !ok {
			return true
		}
	}
	return false
}

func (t *Traces) close() error {
	var errs []error
	t.unwinding.close()
	if t.watch != nil {
		errs = append(errs, t.watch.Stop())
		t.watched.Wait()
		errs = append(errs, t.watch.Close())
	}
	return errors.Join(append(errs, t.processes.Close())...)
}
