package probe

import (
	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// EarlyRing is a ring buffer that is created in the background, while the program reads what Load
// needs. The kernel takes 0.25 ms for each MB.
type EarlyRing struct {
	done chan struct{}
	m    *ebpf.Map // nil if creating it failed: Load then tries again and returns the error
}

// CreateRing begins to create the ring buffer "events" of an object, with the size entries in bytes if it
// is not 0. It returns nil, which is valid, if the object has none.
func CreateRing(spec *ebpf.CollectionSpec, entries uint32) *EarlyRing {
	events := spec.Maps["events"]
	if events == nil || events.Type != ebpf.RingBuf {
		return nil
	}
	events = events.Copy()
	if entries != 0 {
		events.MaxEntries = entries
	}
	raiseLimit()
	r := &EarlyRing{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.m, _ = ebpf.NewMap(events)
	}()
	return r
}

// take returns the ring buffer if it is as spec defines it, otherwise nil. The caller owns it.
func (r *EarlyRing) take(spec *ebpf.MapSpec) *ebpf.Map {
	if r == nil {
		return nil
	}
	<-r.done
	if r.m == nil || spec.Type != ebpf.RingBuf || spec.MaxEntries != r.m.MaxEntries() || spec.Flags != r.m.Flags() {
		return nil
	}
	m := r.m
	r.m = nil
	return m
}

// Close frees the ring buffer if Load has not used it.
func (r *EarlyRing) Close() error {
	if r == nil {
		return nil
	}
	<-r.done
	return r.m.Close()
}

// raiseLimit raises the limit of locked memory: kernels before 5.11 account BPF memory as such. If the
// limit cannot be raised and is too low, creating maps fails.
func raiseLimit() {
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}
