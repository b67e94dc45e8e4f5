package source

import (
	"errors"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
)

// Held is for tools that report what is currently held, such as allocations or locks (held.bpf.h):
// [Stacks] then counts the entries of the map "held" at each report. H is the Go type of struct
// held_value.
type Held[H any, K comparable, V any] struct {
	// Count returns the key and the value that an entry counts as; false excludes it.
	Count func(*HeldKey, *H, Moment) (K, V, bool)
}

// HeldKey mirrors struct held_key.
type HeldKey struct {
	ID         uint64
	PID, Image uint32
}

// Moment is the time of a report.
type Moment struct {
	now   uint64
	ended map[uint32]bool
	// local converts a PID to the PID namespace of corescope. It returns 0 if the process has none
	// there.
	local func(pid uint32) uint32
}

// Since returns the time from t to the report (CLOCK_BOOTTIME).
func (m Moment) Since(t uint64) time.Duration { return time.Duration(max(m.now, t) - t) }

// Ended reports whether the process has exited. It returns false for processes outside the PID
// namespace of corescope, because their state is unknown.
func (m Moment) Ended(pid uint32) bool {
	ended, isCached := m.ended[pid]
	if !isCached {
		local := m.local(pid)
		ended = local != 0 && errors.Is(unix.Kill(int(local), 0), unix.ESRCH)
		m.ended[pid] = ended
	}
	return ended
}

// holdings is a Held of any type.
type holdings[K comparable, V any] interface {
	check(*ebpf.CollectionSpec) error
	each(s *tool.Session, yield func(*K, *V)) error
}

func (h *Held[H, K, V]) check(spec *ebpf.CollectionSpec) error {
	m := spec.Maps["held"]
	if m == nil {
		return errors.New("the object has no map held")
	}
	return errors.Join(checkStruct(m.Key, reflect.TypeFor[HeldKey]()), checkStruct(m.Value, reflect.TypeFor[H]()))
}

// each calls yield for all entries. Entries of a process from before its last exec are deleted
// instead, because exec releases the resources.
func (h *Held[H, K, V]) each(s *tool.Session, yield func(*K, *V)) error {
	images := map[uint32]uint32{}
	if err := probe.EachEntry(s.Objects.Maps["images"], func(pid, image *uint32) { images[*pid] = *image }); err != nil {
		return fmt.Errorf("read programs of processes: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return fmt.Errorf("read boot clock: %w", err)
	}
	moment := Moment{uint64(now.Nano()), map[uint32]bool{}, localPIDs(s)}
	old := probe.NewEntries(reflect.TypeFor[HeldKey]())
	err := probe.EachEntry(s.Objects.Maps["held"], func(key *HeldKey, value *H) {
		if key.Image < images[key.PID] {
			old.Append(unsafe.Pointer(key))
			return
		}
		if k, v, ok := h.Count(key, value, moment); ok {
			yield(&k, &v)
		}
	})
	if err != nil {
		return fmt.Errorf("read held resources: %w", err)
	}
	if err := old.DeleteOneByOne(s.Objects.Maps["held"]); err != nil {
		return fmt.Errorf("delete held resources from before exec: %w", err)
	}
	return nil
}

// localPIDs returns a function that translates PIDs of the initial PID namespace into those of the
// PID namespace of corescope.
func localPIDs(s *tool.Session) func(pid uint32) uint32 {
	if ns, _ := s.Env.PIDNamespace(); ns.Initial {
		return func(pid uint32) uint32 { return pid }
	}
	return func(pid uint32) uint32 {
		var local uint32
		_ = s.Objects.Maps["held_pids"].Lookup(pid, &local) // 0 if it is missing
		return local
	}
}
