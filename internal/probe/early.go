package probe

import (
	"cmp"
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Early has the maps that are created in the background, while the program reads what Load needs: those to wait
// for grace periods, and the ring buffer, of which each MB takes the kernel 0.25 ms. A nil *Early is valid, and
// has none.
type Early struct {
	done  chan struct{}
	grace *gracePeriods // nil, like ring, if creating it failed: Load then tries again and returns the error
	ring  *ebpf.Map     // the map "events"
}

// CreateEarly begins to create the maps for an object. The ring buffer has the size entries in bytes if it is
// not 0, and is omitted if the object has none.
func CreateEarly(spec *ebpf.CollectionSpec, entries uint32) *Early {
	raiseLimit()
	e := &Early{done: make(chan struct{})}
	events := spec.Maps["events"]
	if events != nil {
		events = events.Copy()
		events.MaxEntries = cmp.Or(entries, events.MaxEntries)
	}
	go func() {
		defer close(e.done)
		e.grace, _ = newGracePeriods()
		if events != nil && events.Type == ebpf.RingBuf {
			e.ring, _ = ebpf.NewMap(events)
		}
	}()
	return e
}

// takeGrace returns the maps to wait for grace periods. The caller owns them.
func (e *Early) takeGrace() (*gracePeriods, error) {
	if e == nil {
		return newGracePeriods()
	}
	<-e.done
	if e.grace == nil {
		return newGracePeriods()
	}
	g := e.grace
	e.grace = nil
	return g, nil
}

// takeRing returns the ring buffer if it is as spec defines it, otherwise nil. The caller owns it.
func (e *Early) takeRing(spec *ebpf.MapSpec) *ebpf.Map {
	if e == nil {
		return nil
	}
	<-e.done
	if e.ring == nil || spec.Type != ebpf.RingBuf || spec.MaxEntries != e.ring.MaxEntries() || spec.Flags != e.ring.Flags() {
		return nil
	}
	m := e.ring
	e.ring = nil
	return m
}

// Close frees what Load has not used.
func (e *Early) Close() error {
	if e == nil {
		return nil
	}
	<-e.done
	return errors.Join(e.grace.Close(), e.ring.Close())
}

// raiseLimit raises the limit of locked memory: kernels before 5.11 account BPF memory as such. If the
// limit cannot be raised and is too low, creating maps fails.
func raiseLimit() {
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}
