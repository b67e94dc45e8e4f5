package stacktrace

import (
	"encoding/binary"
	"errors"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/probe"
)

// sentStacks accesses what programs store about stacks: the map "stacks_sent", which has the IDs of
// stacks that have been sent, and maps with IDs that will be counted later (stacks.bpf.h).
type sentStacks struct {
	sent    *ebpf.Map
	holders map[*ebpf.Map][]uint32 // map → offsets of IDs in its values
}

// NewSentStacks returns the stack IDs in the maps of the loaded programs. holders is the result of
// StackHolders.
func NewSentStacks(maps map[string]*ebpf.Map, holders map[string][]uint32) *sentStacks {
	s := &sentStacks{sent: maps["stacks_sent"], holders: map[*ebpf.Map][]uint32{}}
	for name, offsets := range holders {
		s.holders[maps[name]] = offsets
	}
	return s
}

// StackHolders returns the maps whose values contain stack IDs, with the offsets of the IDs.
func StackHolders(spec *ebpf.CollectionSpec) map[string][]uint32 {
	holders := map[string][]uint32{}
	for name, m := range spec.Maps {
		if offsets := stackIDs(m.Value, 0); len(offsets) > 0 {
			holders[name] = offsets
		}
	}
	return holders
}

// stackIDs returns the offsets of the members of a struct whose type is stack_id_t.
func stackIDs(t btf.Type, base uint32) []uint32 {
	switch t := t.(type) {
	case *btf.Typedef:
		if t.Name == "stack_id_t" {
			return []uint32{base}
		}
		return stackIDs(t.Type, base)
	case *btf.Struct:
		var offsets []uint32
		for _, m := range t.Members {
			offsets = append(offsets, stackIDs(m.Type, base+m.Offset.Bytes())...)
		}
		return offsets
	}
	return nil
}

func (s *sentStacks) storedIDs() (map[StackID]bool, error) {
	ids := map[StackID]bool{}
	for m, offsets := range s.holders {
		err := eachValue(m, func(value []byte) {
			for _, offset := range offsets {
				if id := StackID(binary.NativeEndian.Uint64(value[offset:])); id != 0 {
					ids[id] = true
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// clearSent removes IDs from the map "stacks_sent". If a program writes another ID to the same slot
// at the same time, that ID can be lost; its stack is then sent again, which is harmless.
func (s *sentStacks) clearSent(ids []StackID) error {
	slots := uint64(s.sent.MaxEntries())
	for _, id := range ids {
		for _, slot := range [...]uint32{uint32(uint64(id) % slots), uint32(uint64(id) >> 32 % slots)} {
			var current StackID
			if err := s.sent.Lookup(slot, &current); err != nil {
				return err
			}
			if current != id {
				continue
			}
			if err := s.sent.Put(slot, uint64(0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachValue calls yield for the bytes of each value of a map.
func eachValue(m *ebpf.Map, yield func([]byte)) error {
	bytesOf := func(size uint32) reflect.Value {
		element := reflect.ArrayOf(int(size), reflect.TypeFor[byte]())
		return reflect.MakeSlice(reflect.SliceOf(element), probe.BatchEntries, probe.BatchEntries)
	}
	keys, values := bytesOf(m.KeySize()), bytesOf(m.ValueSize())
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if errors.Is(err, ebpf.ErrNotSupported) {
			break
		}
		for i := range n {
			yield(values.Index(i).Bytes())
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	var key, value []byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		yield(value)
	}
	return it.Err()
}
