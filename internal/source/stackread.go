package source

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
)

// namesKeep returns the capabilities that a run with stacks needs once all hooks are attached: those
// for user stacks, and to symbolize addresses of the kernel.
func namesKeep() []system.Capability {
	return append(tool.UserStackNeeds(), system.CapSyslog)
}

// stackDelay is the default of stackReading.Delay. With 200 instead of 40 ms, profile -F 99 takes 1.39 instead of
// 1.62 % of a CPU (make bench).
const stackDelay = 200 * time.Millisecond

// stackReading reads stacks concurrently with a run that counts by them.
type stackReading struct {
	// Delay is the time for which stacks wait in the ring buffer, unless the process is needed to symbolize
	// them (stacks.bpf.h); 0 means stackDelay.
	Delay time.Duration

	traces *stacktrace.Traces
	unwind bool // user stacks are unwound with unwind tables
	reader ring.Reader
	read   chan error // receives the result of reading when it ends
	ids    []uintptr  // offsets of stack IDs in keys
	// holders are the maps whose values contain stack IDs, with the offsets of the IDs.
	holders  map[string][]uint32
	programs stacktrace.ProgramStacks
}

// describe finds the stack IDs in keys and sets the sizes of maps.
func (r *stackReading) describe(spec *ebpf.CollectionSpec, p *tool.Plan, key reflect.Type, bytes int) error {
	if p.MapEntries == nil {
		p.MapEntries = map[string]uint32{}
	}
	p.MapEntries["events"] = uint32(bufferSize(bytes))
	if p.Variables == nil {
		p.Variables = map[string]any{}
	}
	r.Delay = cmp.Or(r.Delay, stackDelay)
	p.Variables["event_wakeup_ns"] = uint64(r.Delay)
	r.ids = idOffsets(key, 0)
	r.holders = stacktrace.StackHolders(spec)
	return stacktrace.Setup(spec, p.MapEntries, r.unwind)
}

// open creates the reader. It is called before hooks are attached, begin afterwards.
func (r *stackReading) open(s *tool.Session, bytes int) (err error) {
	r.reader, err = ring.New(s.Objects.Maps["events"], bufferSize(bytes), r.Delay)
	if err != nil {
		return fmt.Errorf("read stacks: %w", probe.Classify(err))
	}
	r.programs = stacktrace.NewSentStacks(s.Objects.Maps, r.holders)
	r.traces.Open(s.Objects, s.PID, r.unwind, s.Notify)
	return nil
}

// endDrain drops stacks that are no longer used. It is called after a drain, when the stacks of the
// drained counts have been looked up.
func (r *stackReading) endDrain() error { return r.traces.Cache.EndDrain(r.programs) }

// begin starts to read and symbolize stacks in the background.
func (r *stackReading) begin(s *tool.Session) {
	r.read = make(chan error, 1)
	go func() {
		var err error // nil after a panic, which ends the run
		s.Objects.Guarded(func() { err = r.traces.Read(r.reader) })()
		r.read <- err
	}()
}

func (r *stackReading) close() error { return errors.Join(r.reader.Close(), r.traces.Close()) }

// finish waits until all stacks are read.
func (r *stackReading) finish() error {
	if err := r.reader.Stop(); err != nil {
		return err
	}
	err := <-r.read
	r.traces.Settle()
	return err
}

// await waits until stacks of counts are symbolized. Those that have not been received are read now.
func (r *stackReading) await(ids map[stacktrace.StackID]bool) error {
	if err := r.reader.Wake(); err != nil {
		return fmt.Errorf("read stacks: %w", err)
	}
	r.traces.Await(ids)
	return nil
}

// addIDs adds the stack IDs of a key to ids.
func (r *stackReading) addIDs(ids map[stacktrace.StackID]bool, key unsafe.Pointer) {
	for _, offset := range r.ids {
		if id := *(*stacktrace.StackID)(unsafe.Add(key, offset)); id != 0 {
			ids[id] = true
		}
	}
}
