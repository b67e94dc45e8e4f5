package source

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
)

// Max is a field of the value of a table that is not summed: the greatest of the CPUs, keys and
// intervals of a row.
type Max uint64

// fieldOffsets returns the offsets of the fields of type F in a struct.
func fieldOffsets[F any](t reflect.Type, base uintptr) []uintptr {
	var offsets []uintptr
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Type == reflect.TypeFor[F]():
			offsets = append(offsets, base+f.Offset)
		case f.Type.Kind() == reflect.Struct:
			offsets = append(offsets, fieldOffsets[F](f.Type, base+f.Offset)...)
		}
	}
	return offsets
}

func (t *Table[K, V, R]) add(sum, v *V) {
	for _, offset := range t.counters {
		*(*uint64)(unsafe.Add(unsafe.Pointer(sum), offset)) += *(*uint64)(unsafe.Add(unsafe.Pointer(v), offset))
	}
	for _, offset := range t.maxima {
		greatest := (*Max)(unsafe.Add(unsafe.Pointer(sum), offset))
		*greatest = max(*greatest, *(*Max)(unsafe.Add(unsafe.Pointer(v), offset)))
	}
}

// drain moves the counts of the epochs that have ended from the map to a sum per row.
func (t *Table[K, V, R]) drain(s *tool.Session) (map[R]*V, error) {
	if t.isTotals() {
		return t.drainTotals(s.Objects.Maps["totals"], t.epochs.hasEnded(s))
	}
	return t.drainKeyed(s.Objects.Maps["table"], t.epochs.hasEnded(s))
}

func (t *Table[K, V, R]) drainKeyed(m *ebpf.Map, hasEnded func(epoch uint32) bool) (map[R]*V, error) {
	keys := map[K]*V{}
	var old []tableEntry[K]
	err := probe.EachEntry(m, func(e *tableEntry[K], v *V) {
		if !hasEnded(e.Epoch) {
			return
		}
		old = append(old, *e)
		if sum := keys[e.Key]; sum != nil {
			t.merge(sum, v)
			return
		}
		first := *v
		keys[e.Key] = &first
	})
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	if err := probe.DeleteEntries(m, old); err != nil {
		return nil, fmt.Errorf("clear table: %w", err)
	}
	sums := map[R]*V{}
	for key, v := range keys {
		t.addTo(sums, &key, v)
	}
	return sums, nil
}

// Since is a field of the value of a table: the time at which the fields that are not counters were
// read. Each CPU has its own value of a key, and these fields can differ, such as the name of a
// file that was renamed; the earliest are used. Since is 0 if values cannot differ.
type Since uint64

// merge adds another CPU's value of the same key.
func (t *Table[K, V, R]) merge(sum, v *V) {
	if t.since(v) < t.since(sum) {
		first := *v
		t.add(&first, sum)
		*sum = first
		return
	}
	t.add(sum, v)
}

// since returns the Since of a value, 0 if it has none.
func (t *Table[K, V, R]) since(v *V) Since {
	if t.sinceAt == 0 {
		return 0
	}
	return *(*Since)(unsafe.Add(unsafe.Pointer(v), t.sinceAt))
}

// sinceOffset returns the offset of Since in a value, or 0: counters come first.
func sinceOffset(t reflect.Type) uintptr {
	for i := range t.NumField() {
		if f := t.Field(i); f.Type == reflect.TypeFor[Since]() {
			return f.Offset
		}
	}
	return 0
}

func (t *Table[K, V, R]) addTo(sums map[R]*V, k *K, v *V) {
	var row R
	if t.Label != nil {
		row = t.Label(k, v)
	}
	if sum := sums[row]; sum != nil {
		t.add(sum, v)
		return
	}
	first := *v
	sums[row] = &first
}

func (t *Table[K, V, R]) drainTotals(m *ebpf.Map, hasEnded func(epoch uint32) bool) (map[R]*V, error) {
	var noKey K
	sums := map[R]*V{}
	for epoch := range uint32(2) {
		if !hasEnded(epoch) {
			continue
		}
		var cpus []V
		if err := m.Lookup(epoch, &cpus); err != nil {
			return nil, fmt.Errorf("read totals: %w", err)
		}
		for i := range cpus {
			t.addTo(sums, &noKey, &cpus[i])
		}
		if err := m.Put(epoch, cpus[:0]); err != nil { // zeros for all CPUs
			return nil, fmt.Errorf("clear totals: %w", err)
		}
	}
	return sums, nil
}

// addUp adds the sums of an interval to those of all previous ones, and returns the latter.
func (t *Table[K, V, R]) addUp(sums map[R]*V) map[R]*V {
	if t.sums == nil {
		t.sums = map[R]*V{}
	}
	for row, v := range sums {
		if sum := t.sums[row]; sum != nil {
			t.add(sum, v)
		} else {
			t.sums[row] = v
		}
	}
	return t.sums
}

// isEmpty reports whether all counters are 0.
func (t *Table[K, V, R]) isEmpty(sums map[R]*V) bool {
	for _, v := range sums {
		for _, offset := range t.counters {
			if *(*uint64)(unsafe.Add(unsafe.Pointer(v), offset)) != 0 {
				return false
			}
		}
	}
	return true
}
