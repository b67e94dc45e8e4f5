package tool

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Held is what is counted where things are held, and given back some day (held.bpf.h): the
// counts of [Stacks] are then of what is held as they report. H is the Go type of struct
// held_value.
type Held[H any, K comparable, V any] struct {
	// Count is what a thing counts as, and for whom; false leaves it out.
	Count func(*HeldKey, *H, Moment) (K, V, bool)
}

// HeldKey is struct held_key.
type HeldKey struct {
	ID         uint64
	PID, Image uint32
}

// Moment is when things are looked at.
type Moment struct {
	now   uint64
	ended map[uint32]bool
}

// Since is the time since then, of CLOCK_BOOTTIME.
func (m Moment) Since(t uint64) time.Duration { return time.Duration(max(m.now, t) - t) }

// Ended tells whether the process is gone.
func (m Moment) Ended(pid uint32) bool {
	ended, known := m.ended[pid]
	if !known {
		ended = errors.Is(unix.Kill(int(pid), 0), unix.ESRCH)
		m.ended[pid] = ended
	}
	return ended
}

// holdings are Held of any type.
type holdings[K comparable, V any] interface {
	check(*ebpf.CollectionSpec) error
	each(s *session, yield func(*K, *V)) error
}

func (h *Held[H, K, V]) check(spec *ebpf.CollectionSpec) error {
	m := spec.Maps["held"]
	if m == nil {
		return errors.New("the object has nothing that is held")
	}
	return errors.Join(checkStruct(m.Key, reflect.TypeFor[HeldKey]()), checkStruct(m.Value, reflect.TypeFor[H]()))
}

// each reads what is held. It forgets what processes had before they executed another
// program.
func (h *Held[H, K, V]) each(s *session, yield func(*K, *V)) error {
	images := map[uint32]uint32{}
	if err := eachEntry(s.objects.Maps["images"], func(pid, image *uint32) { images[*pid] = *image }); err != nil {
		return fmt.Errorf("read programs of processes: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return fmt.Errorf("read boot clock: %w", err)
	}
	moment := Moment{uint64(now.Nano()), map[uint32]bool{}}
	var old []HeldKey
	err := eachEntry(s.objects.Maps["held"], func(key *HeldKey, value *H) {
		if key.Image < images[key.PID] {
			old = append(old, *key)
			return
		}
		if k, v, ok := h.Count(key, value, moment); ok {
			yield(&k, &v)
		}
	})
	if err != nil {
		return fmt.Errorf("read what is held: %w", err)
	}
	if err := deleteSingle(s.objects.Maps["held"], old); err != nil {
		return fmt.Errorf("clear what was held: %w", err)
	}
	return nil
}
