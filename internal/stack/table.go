package stack

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// symbol is one entry on its way into a table.
type symbol struct {
	start uint64
	end   uint64 // first address behind it; no more than a limit if open
	name  uint32 // offset of the NUL-terminated name
	rank  uint8  // which of several names of one address is taken: the lowest
	open  bool   // the size is unknown: it reaches to the next symbol or end
	mark  bool   // it ends what is open before it and names nothing
	label bool   // it names nothing within a function, even if that is open
}

// table finds the function that covers an address, in 16 bytes a symbol and
// the names. It never changes once built.
type table struct {
	starts  []uint64
	spans   []span
	names   []byte
	parents map[uint32]uint32 // symbol → the one around it, if there is one
}

type span struct {
	size uint32
	name uint32
}

// newTable builds a table out of symbols, which it sorts, and keeps names.
// Where symbols overlap, the one that starts last has the address. An open
// symbol within a sized one is a label of that function and is left out.
func newTable(symbols []symbol, names []byte) *table {
	sortSymbols(symbols, names)
	symbols = withoutLabels(symbols)
	t := &table{names: names}
	var around []int // indices of the symbols that may cover what follows
	for i := 0; i < len(symbols); {
		s := symbols[i]
		for i++; i < len(symbols) && symbols[i].start == s.start; i++ {
		}
		if s.open && i < len(symbols) {
			s.end = min(s.end, symbols[i].start)
		}
		for len(around) > 0 && t.end(around[len(around)-1]) <= s.start {
			around = around[:len(around)-1]
		}
		if s.mark || s.end <= s.start || s.open && len(around) > 0 {
			continue
		}
		around = t.add(s, around)
	}
	t.starts, t.spans = slices.Clip(t.starts), slices.Clip(t.spans)
	return t
}

// withoutLabels leaves out labels of open functions, which reach to the next function.
func withoutLabels(symbols []symbol) []symbol {
	var end uint64 // of the open function
	return slices.DeleteFunc(symbols, func(s symbol) bool {
		if s.label {
			return s.start < end
		}
		if end = 0; s.open && !s.mark {
			end = s.end
		}
		return false
	})
}

func (t *table) add(s symbol, around []int) []int {
	i := len(t.starts)
	if len(around) > 0 {
		if t.parents == nil {
			t.parents = make(map[uint32]uint32)
		}
		t.parents[uint32(i)] = uint32(around[len(around)-1])
	}
	t.starts = append(t.starts, s.start)
	t.spans = append(t.spans, span{uint32(min(s.end-s.start, math.MaxUint32)), s.name})
	return append(around, i)
}

func (t *table) end(i int) uint64 {
	return t.starts[i] + uint64(t.spans[i].size)
}

// sortSymbols orders by address, the best name of an address first.
func sortSymbols(symbols []symbol, names []byte) {
	slices.SortFunc(symbols, func(a, b symbol) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return compareAliases(a, b, names)
	})
}

// compareAliases orders the names of one address: what names something, what
// has a size, the larger one, and then the name that a programmer would know:
// with fewer underscores in front (write before __write and __libc_write) and
// of stronger binding.
func compareAliases(a, b symbol, names []byte) int {
	if c := cmp.Or(compareBool(a.mark, b.mark), compareBool(a.open, b.open)); c != 0 {
		return c
	}
	if c := cmp.Compare(b.end, a.end); c != 0 && !a.open {
		return c
	}
	x, y := cstring(names, a.name), cstring(names, b.name)
	return cmp.Or(
		cmp.Compare(underscores(x), underscores(y)),
		cmp.Compare(a.rank, b.rank),
		bytes.Compare(x, y),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// underscores counts those in front of a name. The vDSO's __vdso_ is part of
// the name: without it the function reads like the one of libc that calls it.
func underscores(name []byte) int {
	if bytes.HasPrefix(name, []byte("__vdso_")) {
		return 0
	}
	return len(name) - len(bytes.TrimLeft(name, "_"))
}

// lookup returns the index of the symbol that covers addr, or -1.
func (t *table) lookup(addr uint64) int {
	i, exact := slices.BinarySearch(t.starts, addr)
	if !exact {
		i--
	}
	for i >= 0 && addr-t.starts[i] >= uint64(t.spans[i].size) {
		parent, ok := t.parents[uint32(i)]
		if !ok {
			return -1
		}
		i = int(parent)
	}
	return i
}

// name returns the name of symbol i, a part of the table's memory.
func (t *table) name(i int) []byte {
	return cstring(t.names, t.spans[i].name)
}

// bytes is the memory the table holds.
func (t *table) bytes() int64 {
	const parent = 32 // a map entry of two words, with its share of the map
	return int64(16*cap(t.starts) + cap(t.names) + parent*len(t.parents))
}

// cstring returns the bytes of b from offset to the next NUL.
func cstring(b []byte, offset uint32) []byte {
	if uint64(offset) >= uint64(len(b)) {
		return nil
	}
	b = b[offset:]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}
