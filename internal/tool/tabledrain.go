package tool

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"
)

// counterOffsets lists where a struct has its counters.
func counterOffsets(t reflect.Type, base uintptr) []uintptr {
	var offsets []uintptr
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Type == reflect.TypeFor[uint64]():
			offsets = append(offsets, base+f.Offset)
		case f.Type.Kind() == reflect.Struct:
			offsets = append(offsets, counterOffsets(f.Type, base+f.Offset)...)
		}
	}
	return offsets
}

func (t *Table[K, V, R]) add(sum, v *V) {
	for _, offset := range t.counters {
		*(*uint64)(unsafe.Add(unsafe.Pointer(sum), offset)) += *(*uint64)(unsafe.Add(unsafe.Pointer(v), offset))
	}
}

// drain moves what the epochs that are over have counted out of the map, by row.
func (t *Table[K, V, R]) drain(s *session) (map[R]*V, error) {
	if t.isTotals() {
		return t.drainTotals(s.objects.Maps["totals"], t.epochs.over(s))
	}
	return t.drainKeyed(s.objects.Maps["table"], t.epochs.over(s))
}

func (t *Table[K, V, R]) drainKeyed(m *ebpf.Map, over func(epoch uint32) bool) (map[R]*V, error) {
	sums := map[R]*V{}
	var old []tableEntry[K]
	err := eachEntry(m, func(e *tableEntry[K], v *V) {
		if !over(e.Epoch) {
			return
		}
		old = append(old, *e)
		t.addTo(sums, &e.Key, v)
	})
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	if err := deleteAll(m, old); err != nil {
		return nil, fmt.Errorf("clear table: %w", err)
	}
	return sums, nil
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

func (t *Table[K, V, R]) drainTotals(m *ebpf.Map, over func(epoch uint32) bool) (map[R]*V, error) {
	var none K
	sums := map[R]*V{}
	for epoch := range uint32(2) {
		if !over(epoch) {
			continue
		}
		var cpus []V
		if err := m.Lookup(epoch, &cpus); err != nil {
			return nil, fmt.Errorf("read totals: %w", err)
		}
		for i := range cpus {
			t.addTo(sums, &none, &cpus[i])
		}
		if err := m.Put(epoch, cpus[:0]); err != nil { // zeros for all CPUs
			return nil, fmt.Errorf("clear totals: %w", err)
		}
	}
	return sums, nil
}

// addUp adds an interval's sums to those of all before, and returns these.
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

// isEmpty tells that nothing was counted.
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
