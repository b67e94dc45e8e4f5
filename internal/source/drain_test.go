package source

import (
	"errors"
	"os"
	"reflect"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/probe"
)

// newMap returns a map with n entries, whose keys start at 0.
func newMap(t *testing.T, kind ebpf.MapType, n uint32, value func(uint32) uint32) *ebpf.Map {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make BPF maps")
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: 4, ValueSize: 4, MaxEntries: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	for key := range n {
		if err := m.Put(key, value(key)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func entries(keys []uint32) *probe.Entries {
	e := probe.NewEntries(reflect.TypeFor[uint32]())
	for i := range keys {
		e.Append(unsafe.Pointer(&keys[i]))
	}
	return e
}

// TestDrain moves all entries out of a map, each once: in batches, and by single calls if the kernel
// supports no batches for the type of the map (before 5.6 for any type).
func TestDrain(t *testing.T) {
	double := func(key uint32) uint32 { return 2 * key }
	loopback := func(uint32) uint32 { return 1 } // a network device
	for _, test := range []struct {
		name    string
		kind    ebpf.MapType
		value   func(uint32) uint32
		batches bool
	}{
		{"batches", ebpf.Hash, double, true},
		{"single", ebpf.DevMapHash, loopback, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			const n = 2*probe.BatchEntries + 5
			m := newMap(t, test.kind, n, test.value)
			var cursor ebpf.MapBatchCursor
			_, err := m.BatchLookup(&cursor, make([]uint32, 1), make([]uint32, 1), nil)
			if has := !errors.Is(err, ebpf.ErrNotSupported); has != test.batches {
				t.Fatalf("look up a batch: %v", err)
			}
			seen := map[uint32]bool{}
			var keys []uint32
			err = probe.EachEntry(m, func(key, val *uint32) {
				if seen[*key] || *val != test.value(*key) {
					t.Errorf("entry %d: %d, seen %v", *key, *val, seen[*key])
				}
				seen[*key] = true
				keys = append(keys, *key)
			})
			if err != nil || len(keys) != n {
				t.Fatalf("%d entries of %d: %v", len(keys), n, err)
			}
			if err := entries(keys[1:]).Delete(m); err != nil {
				t.Fatal(err)
			}
			if err := probe.EachEntry(m, func(key, _ *uint32) { keys = append(keys, *key) }); err != nil || len(keys) != n+1 {
				t.Errorf("%d entries are left, want 1: %v", len(keys)-n, err)
			}
			// Deleting an entry that no longer exists is no error.
			if err := entries(keys[:2]).DeleteOneByOne(m); err != nil {
				t.Error(err)
			}
			if err := m.Delete(keys[0]); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("delete what is deleted: %v", err)
			}
		})
	}
}
