package tool

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/system"
)

// namesKeep are the capabilities that the names of functions take, of the kernel's and of
// processes'.
func namesKeep() []system.Capability {
	return slices.AppendSeq([]system.Capability{system.CapSyslog}, fileCapabilities().All())
}

// stackReading reads the stacks of a run that counts by them, beside all else.
type stackReading struct {
	traces *Traces
	unwind bool // stacks of processes are walked by tables
	reader ring.Reader
	read   chan error // that the reading has ended
	ids    []uintptr  // where keys have numbers of stacks
}

// describe finds the numbers of stacks in keys, and checks the object.
func (r *stackReading) describe(spec *ebpf.CollectionSpec, p *Plan, key reflect.Type, bytes int) error {
	if err := checkStackHead(spec); err != nil {
		return err
	}
	if p.MapEntries == nil {
		p.MapEntries = map[string]uint32{}
	}
	p.MapEntries["events"] = uint32(bufferSize(bytes))
	r.ids = idOffsets(key, 0)
	return setUnwinding(spec, p, r.unwind)
}

// open is called before anything is attached, begin when all is.
func (r *stackReading) open(s *session, bytes int) (err error) {
	r.reader, err = ring.New(s.objects.Maps["events"], bufferSize(bytes/runtime.NumCPU()))
	if err != nil {
		return fmt.Errorf("read stacks: %w", probe.Classify(err))
	}
	r.traces.open(s, r.unwind)
	return nil
}

func (r *stackReading) begin() {
	r.traces.unwinding.await()
	r.read = make(chan error, 1)
	go func() { r.read <- r.traces.read(r.reader) }()
}

func (r *stackReading) close() error { return errors.Join(r.reader.Close(), r.traces.close()) }

// finish returns when all stacks have come that do.
func (r *stackReading) finish() error {
	if err := r.reader.Stop(); err != nil {
		return err
	}
	return <-r.read
}

// addIDs adds the numbers of stacks in the key.
func (r *stackReading) addIDs(ids map[StackID]bool, key unsafe.Pointer) {
	for _, offset := range r.ids {
		if id := *(*StackID)(unsafe.Add(key, offset)); id != 0 {
			ids[id] = true
		}
	}
}
