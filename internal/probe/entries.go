package probe

import (
	"errors"
	"os"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"
)

// BatchEntries is the number of entries per system call.
const BatchEntries = 4096

// EachEntry calls yield for all entries of a map, in batches if the kernel supports it (Linux 5.6).
func EachEntry[K, V any](m *ebpf.Map, yield func(*K, *V)) error {
	return EachOf(m, reflect.TypeFor[K](), reflect.TypeFor[V](), func(k, v unsafe.Pointer) { yield((*K)(k), (*V)(v)) })
}

// EachOf is EachEntry for types that are known at run time only. The pointers are valid during the
// call.
func EachOf(m *ebpf.Map, key, value reflect.Type, yield func(key, value unsafe.Pointer)) error {
	keys := reflect.MakeSlice(reflect.SliceOf(key), BatchEntries, BatchEntries)
	values := reflect.MakeSlice(reflect.SliceOf(value), BatchEntries, BatchEntries)
	at := func(i int) (k, v unsafe.Pointer) {
		return unsafe.Add(keys.UnsafePointer(), i*int(key.Size())), unsafe.Add(values.UnsafePointer(), i*int(value.Size()))
	}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if errors.Is(err, ebpf.ErrNotSupported) {
			break
		}
		for i := range n {
			yield(at(i))
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	it := m.Iterate()
	for it.Next(keys.Index(0).Addr().Interface(), values.Index(0).Addr().Interface()) {
		yield(at(0))
	}
	return it.Err()
}

// Entries are keys of a map, whose type is known at run time only.
type Entries struct {
	of    reflect.Type
	bytes []byte
}

// NewEntries returns no keys of this type, which contains no pointers.
func NewEntries(of reflect.Type) *Entries { return &Entries{of: of} }

// Append copies a key.
func (e *Entries) Append(key unsafe.Pointer) {
	e.bytes = append(e.bytes, unsafe.Slice((*byte)(key), e.of.Size())...)
}

// Len returns the number of keys.
func (e *Entries) Len() int { return len(e.bytes) / int(e.of.Size()) }

// At returns the address of a key, valid until the next Append.
func (e *Entries) At(i int) unsafe.Pointer { return unsafe.Pointer(&e.bytes[i*int(e.of.Size())]) }

// Delete deletes the keys from a map, with one system call if the kernel supports it. Missing keys are
// an error then, and otherwise are not.
func (e *Entries) Delete(m *ebpf.Map) error {
	if len(e.bytes) == 0 {
		return nil
	}
	keys := e.slice()
	if _, err := m.BatchDelete(keys.Interface(), nil); err == nil || !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return e.DeleteOneByOne(m)
}

// DeleteOneByOne deletes the keys from a map. Missing keys are not an error.
func (e *Entries) DeleteOneByOne(m *ebpf.Map) error {
	keys := e.slice()
	for i := range e.Len() {
		if err := m.Delete(keys.Index(i).Addr().Interface()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// slice returns a slice of the keys.
func (e *Entries) slice() reflect.Value {
	keys := reflect.MakeSlice(reflect.SliceOf(e.of), e.Len(), e.Len())
	copy(unsafe.Slice((*byte)(keys.UnsafePointer()), len(e.bytes)), e.bytes)
	return keys
}
