package stacktrace

import (
	"encoding/binary"
	"errors"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/probe"
)

// sentStacks is what programs know about stacks: the map "stacks_sent", and the maps in which they
// store IDs until they count them (stacks.bpf.h).
type sentStacks struct {
	sent    *ebpf.Map
	holders map[*ebpf.Map][]uint32 // offsets of IDs in values
}

// NewSentStacks returns what the loaded programs know about stacks. holders is the result of
// StackHolders.
func NewSentStacks(maps map[string]*ebpf.Map, holders map[string][]uint32) *sentStacks {
	s := &sentStacks{sent: maps["stacks_sent"], holders: map[*ebpf.Map][]uint32{}}
	for name, offsets := range holders {
		s.holders[maps[name]] = offsets
	}
	return s
}

// StackHolders returns the maps whose values contain stack IDs, with the offsets of these.
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

func (s *sentStacks) held() (map[StackID]bool, error) {
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

// forget clears IDs in the map. A program may write another ID to the same place in between, which
// is then lost: the effect is only that its stack is sent once more.
func (s *sentStacks) forget(ids []StackID) error {
	places := uint64(s.sent.MaxEntries())
	for _, id := range ids {
		for _, place := range [...]uint32{uint32(uint64(id) % places), uint32(uint64(id) >> 32 % places)} {
			var there StackID
			if err := s.sent.Lookup(place, &there); err != nil {
				return err
			}
			if there != id {
				continue
			}
			if err := s.sent.Put(place, uint64(0)); err != nil {
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
