package source

import (
	"fmt"
	"reflect"
	"unicode"
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

// snakeNames returns the names of the fields of type F in a struct, in snake_case.
func snakeNames[F any](t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Type == reflect.TypeFor[F]():
			names = append(names, snake(f.Name))
		case f.Type.Kind() == reflect.Struct:
			names = append(names, snakeNames[F](f.Type)...)
		}
	}
	return names
}

// snake converts a Go name: TotalNs to total_ns, RxBytes to rx_bytes, IOWait to io_wait.
func snake(name string) string {
	var b []rune
	runes := []rune(name)
	for i, r := range runes {
		startsWord := unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if startsWord {
			b = append(b, '_')
		}
		b = append(b, unicode.ToLower(r))
	}
	return string(b)
}

func (t *table) add(sum, v unsafe.Pointer) {
	for _, offset := range t.counters {
		*(*uint64)(unsafe.Add(sum, offset)) += *(*uint64)(unsafe.Add(v, offset))
	}
	for _, offset := range t.maxima {
		greatest := (*Max)(unsafe.Add(sum, offset))
		*greatest = max(*greatest, *(*Max)(unsafe.Add(v, offset)))
	}
}

// drain moves the counts of the epochs that have ended from the map to a sum per row.
func (t *table) drain(s *tool.Session) (sums, error) {
	if t.poll != nil {
		return t.drainPolled(s)
	}
	if t.isTotals() {
		return t.drainTotals(s.Objects.Maps["totals"], t.epochs.hasEnded(s))
	}
	hasEnded := t.epochs.hasEnded(s)
	if err := t.drainKeyed(s.Objects.Maps["table"], hasEnded); err != nil {
		return nil, err
	}
	if t.index != nil {
		if err := t.drainArrays(s.Objects.Maps["table_arrays"], hasEnded); err != nil {
			return nil, err
		}
	}
	all := sums{}
	for key, v := range t.keys {
		t.addTo(all, unsafe.Pointer(unsafe.StringData(key)), v)
	}
	t.keys = nil
	return all, nil
}

// setFilling is for tables whose counts are drained to keys.
func (t *table) setFilling(spec *ebpf.CollectionSpec) {
	f := newFilling(spec, "table", t.readings)
	if f == nil {
		return
	}
	f.drain = func(s *tool.Session) error { return t.drainKeyed(s.Objects.Maps["table"], t.epochs.hasEnded(s)) }
	f.kept = func() int { return len(t.keys) }
	t.epochs.filling = f
}

// drainKeyed moves the counts of the epochs that have ended from the map to keys.
func (t *table) drainKeyed(m *ebpf.Map, hasEnded func(epoch uint32) bool) error {
	epochAt := t.entry.Field(1).Offset
	old := probe.NewEntries(t.entry)
	err := probe.EachOf(m, t.entry, t.value, func(e, v unsafe.Pointer) {
		if !hasEnded(*(*uint32)(unsafe.Add(e, epochAt))) {
			return
		}
		old.Append(e)
		t.collect(e, v)
	})
	if err != nil {
		return fmt.Errorf("read table: %w", err)
	}
	if err := old.Delete(m); err != nil {
		return fmt.Errorf("clear table: %w", err)
	}
	return nil
}

// drainArrays moves the values of keys with an index.
func (t *table) drainArrays(m *ebpf.Map, hasEnded func(epoch uint32) bool) error {
	size := int(t.value.Size())
	for epoch := range uint32(2) {
		if !hasEnded(epoch) {
			continue
		}
		var cpus [][]byte
		if err := m.Lookup(epoch, &cpus); err != nil {
			return fmt.Errorf("read arrays of table: %w", err)
		}
		for _, values := range cpus {
			for i := range len(values) / size {
				v := values[i*size:][:size]
				if !isZero(v) {
					t.collect(t.index(uint32(i)), unsafe.Pointer(&v[0]))
				}
			}
		}
		if err := m.Put(epoch, cpus[:0]); err != nil { // zeros for all CPUs
			return fmt.Errorf("clear arrays of table: %w", err)
		}
	}
	return nil
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// collect adds a value to that of the same key.
func (t *table) collect(key, v unsafe.Pointer) {
	if t.keys == nil {
		t.keys = map[string]unsafe.Pointer{}
	}
	name := unsafe.Slice((*byte)(key), t.entry.Field(0).Type.Size())
	if sum := t.keys[string(name)]; sum != nil {
		t.merge(sum, v)
	} else {
		t.keys[string(name)] = t.clone(v)
	}
}

// clone returns a copy of a value.
func (t *table) clone(v unsafe.Pointer) unsafe.Pointer {
	c := reflect.New(t.value)
	c.Elem().Set(reflect.NewAt(t.value, v).Elem())
	return c.UnsafePointer()
}

// Since is a field of the value of a table: the time at which the fields that are not counters were
// read. Each CPU has its own value of a key, and these fields can differ, such as the name of a
// file that was renamed; the earliest are used. Since is 0 if values cannot differ.
type Since uint64

// merge adds another CPU's value of the same key.
func (t *table) merge(sum, v unsafe.Pointer) {
	if t.since(v) < t.since(sum) {
		first := t.clone(v)
		t.add(first, sum)
		reflect.NewAt(t.value, sum).Elem().Set(reflect.NewAt(t.value, first).Elem())
		return
	}
	t.add(sum, v)
}

// since returns the Since of a value, 0 if it has none.
func (t *table) since(v unsafe.Pointer) Since {
	if t.sinceAt == 0 {
		return 0
	}
	return *(*Since)(unsafe.Add(v, t.sinceAt))
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

func (t *table) addTo(all sums, key, v unsafe.Pointer) {
	row := t.label(key, v)
	if sum := all[row]; sum != nil {
		t.add(sum, v)
	} else {
		all[row] = t.clone(v)
	}
}

func (t *table) drainTotals(m *ebpf.Map, hasEnded func(epoch uint32) bool) (sums, error) {
	all := sums{}
	for epoch := range uint32(2) {
		if !hasEnded(epoch) {
			continue
		}
		cpus := reflect.New(reflect.SliceOf(t.value))
		if err := m.Lookup(epoch, cpus.Interface()); err != nil {
			return nil, fmt.Errorf("read totals: %w", err)
		}
		for i := range cpus.Elem().Len() {
			t.addTo(all, nil, cpus.Elem().Index(i).Addr().UnsafePointer())
		}
		if err := m.Put(epoch, cpus.Elem().Slice(0, 0).Interface()); err != nil { // zeros for all CPUs
			return nil, fmt.Errorf("clear totals: %w", err)
		}
	}
	return all, nil
}

// drainPolled returns the differences of the counters to the previous reading. At the first reading
// there are none. The counters of a key that is new begin at 0.
func (t *table) drainPolled(s *tool.Session) (sums, error) {
	keySize := t.entry.Field(0).Type.Size()
	sums, before := sums{}, t.polled
	t.polled = map[string]unsafe.Pointer{}
	err := t.poll(func(key, v unsafe.Pointer) { t.polled[string(unsafe.Slice((*byte)(key), keySize))] = t.clone(v) })
	if err != nil || before == nil {
		return sums, err
	}
	for key, v := range t.polled {
		v = t.clone(v)
		if old := before[key]; old != nil {
			t.subtract(v, old)
		}
		t.addTo(sums, unsafe.Pointer(unsafe.StringData(key)), v)
	}
	for key := range before {
		if t.polled[key] == nil {
			s.Missed++
		}
	}
	return sums, nil
}

// subtract subtracts counters. A counter that is less than before began at 0 again.
func (t *table) subtract(v, before unsafe.Pointer) {
	for _, offset := range t.counters {
		n, old := (*uint64)(unsafe.Add(v, offset)), *(*uint64)(unsafe.Add(before, offset))
		if *n >= old {
			*n -= old
		}
	}
}

// addUp adds the sums of an interval to those of all previous ones, and returns the latter.
func (t *table) addUp(more sums) sums {
	if t.sums == nil {
		t.sums = sums{}
	}
	for row, v := range more {
		if sum := t.sums[row]; sum != nil {
			t.add(sum, v)
		} else {
			t.sums[row] = v
		}
	}
	return t.sums
}

// isEmpty reports whether all counters are 0.
func (t *table) isEmpty(all sums) bool {
	for _, v := range all {
		for _, offset := range t.counters {
			if *(*uint64)(unsafe.Add(v, offset)) != 0 {
				return false
			}
		}
	}
	return true
}
