package probe

import (
	"errors"
	"os"

	"github.com/cilium/ebpf"
)

// BatchEntries is the number of entries per system call.
const BatchEntries = 4096

// EachEntry calls yield for all entries of a map, in batches if the kernel supports it (Linux 5.6).
func EachEntry[K, V any](m *ebpf.Map, yield func(*K, *V)) error {
	keys, values := make([]K, BatchEntries), make([]V, BatchEntries)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if errors.Is(err, ebpf.ErrNotSupported) {
			return eachSingle(m, yield)
		}
		for i := range n {
			yield(&keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func eachSingle[K, V any](m *ebpf.Map, yield func(*K, *V)) error {
	var key K
	var val V
	it := m.Iterate()
	for it.Next(&key, &val) {
		yield(&key, &val)
	}
	return it.Err()
}

// DeleteEntries deletes the keys from a map, with one system call if the kernel supports it.
func DeleteEntries[K any](m *ebpf.Map, keys []K) error {
	if len(keys) == 0 {
		return nil
	}
	if _, err := m.BatchDelete(keys, nil); err == nil || !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return DeleteOneByOne(m, keys)
}

// DeleteOneByOne deletes the keys from a map. Missing keys are not an error.
func DeleteOneByOne[K any](m *ebpf.Map, keys []K) error {
	for i := range keys {
		if err := m.Delete(&keys[i]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
