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

	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/value"
)

// StackID is the number that programs know a stack by (stacks.bpf.h), 0 for no stack.
type StackID uint64

// stackHead is struct stack_head, which addresses follow.
type stackHead struct {
	Time uint64 `btf:"time_ns"`
	ID   StackID
	PID  uint32
	_    uint32
}

const stackHeadSize = 24

// Traces are the stacks that programs have sent, with the names that their addresses had
// then. Processes may have ended since.
type Traces struct {
	exact     bool // addresses in a function are told apart
	depth     int
	kernel    *stack.Kernel
	processes *stack.Processes

	// Only for the goroutine that reads.
	frames []stack.Frame
	addrs  []uint64
	text   []byte

	mu   sync.Mutex
	byID map[StackID]value.Trace
	seed maphash.Seed
	same map[uint64][]value.Trace // by a hash of what they have in them
}

func newTraces(o *StackOptions, env *Env) *Traces {
	return &Traces{
		exact: o.exact(), depth: int(o.Depth), kernel: env.symbols, processes: stack.NewProcesses(0),
		byID: map[StackID]value.Trace{}, seed: maphash.MakeSeed(), same: map[uint64][]value.Trace{},
	}
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

// read takes all stacks that come, until the reader is stopped.
func (t *Traces) read(r ring.Reader) error {
	for {
		sample, err := r.Read()
		switch {
		case errors.Is(err, ring.ErrIdle):
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read stacks: %w", err)
		default:
			t.add(sample)
		}
	}
}

// add names a stack that was sent.
func (t *Traces) add(sample []byte) {
	if len(sample) < stackHeadSize {
		return
	}
	id, pid := StackID(binary.NativeEndian.Uint64(sample[8:])), binary.NativeEndian.Uint32(sample[16:])
	t.addrs = t.addrs[:0]
	for b := sample[stackHeadSize:]; len(b) >= 8; b = b[8:] {
		t.addrs = append(t.addrs, binary.NativeEndian.Uint64(b))
	}
	s := t.name(pid, t.addrs)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[id] = t.intern(s)
}

func (t *Traces) name(pid uint32, addrs []uint64) value.Stack {
	if pid == 0 {
		t.frames = t.kernel.Append(t.frames[:0], addrs)
		t.frames = t.frames[programFrames(t.frames):]
	} else {
		t.frames = t.processes.Append(t.frames[:0], int(pid), addrs)
	}
	s := make(value.Stack, 0, len(t.frames))
	for i := range t.frames {
		s = append(s, valueFrame(&t.frames[i], t.exact))
	}
	if len(addrs) >= t.depth {
		s = append(s, value.Frame{Symbol: "[truncated]", Kernel: pid == 0})
	}
	return s
}

// valueFrame is a frame as it is shown. One of a function is the same for each of its
// addresses unless these are to be exact.
func valueFrame(f *stack.Frame, exact bool) value.Frame {
	v := value.Frame{
		Symbol: f.Name, Module: f.Module, Offset: f.Offset, Address: value.Address(f.Addr),
		BuildID: f.BuildID, Reason: f.Reason.String(), Kernel: f.Kernel,
	}
	if !exact && v.Symbol != "" {
		v.Offset, v.Address, v.BuildID = 0, 0, ""
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

func (t *Traces) close() error { return t.processes.Close() }
