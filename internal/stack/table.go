package stack

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// symbol is an entry from which a table is built.
type symbol struct {
	start uint64
	end   uint64 // first address after it; an upper bound if open is set
	name  uint32 // offset of the NUL-terminated name
	rank  uint8  // if several symbols have the same address, the one with the lowest rank is used
	open  bool   // the size is unknown: it ends at the next symbol, or at end
	bound bool   // it ends the open symbol before it, but is not a function
	label bool   // it is ignored in a function, even if that is open
}

// table finds the function that contains an address. It takes 16 bytes per symbol, and the names.
// It is immutable.
type table struct {
	starts  []uint64
	spans   []span
	names   []byte
	parents map[uint32]uint32 // symbol → the one that contains it, if any
}

type span struct {
	size uint32
	name uint32
}

// newTable builds a table from symbols, which it sorts. It keeps names. If symbols overlap, an
// address belongs to the one with the highest start. An open symbol in a symbol with a size is a
// label of that function, and is ignored.
func newTable(symbols []symbol, names []byte) *table {
	sortSymbols(symbols, names)
	symbols = withoutLabels(symbols)
	t := &table{names: names}
	var around []int // indices of symbols that can contain the next ones
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
		if s.bound || s.end <= s.start || s.open && len(around) > 0 {
			continue
		}
		around = t.add(s, around)
	}
	t.starts, t.spans = slices.Clip(t.starts), slices.Clip(t.spans)
	return t
}

// withoutLabels removes labels of open functions, which end at the next function.
func withoutLabels(symbols []symbol) []symbol {
	var end uint64 // of the open function
	return slices.DeleteFunc(symbols, func(s symbol) bool {
		if s.label {
			return s.start < end
		}
		if end = 0; s.open && !s.bound {
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

// sortSymbols sorts by address, and symbols of the same address by preference.
func sortSymbols(symbols []symbol, names []byte) {
	slices.SortFunc(symbols, func(a, b symbol) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return compareAliases(a, b, names)
	})
}

// compareAliases orders symbols of the same address by preference: functions first, then symbols
// with a size, larger ones, names with fewer leading underscores (write before __write and
// __libc_write), and stronger binding.
func compareAliases(a, b symbol, names []byte) int {
	if c := cmp.Or(compareBool(a.bound, b.bound), compareBool(a.open, b.open)); c != 0 {
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

// underscores counts leading underscores. __vdso_ counts as a part of the name, because the rest is
// also the name of the libc function that calls it.
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

// name returns the name of symbol i. It refers to the memory of the table.
func (t *table) name(i int) []byte {
	return cstring(t.names, t.spans[i].name)
}

// bytes returns the memory of the table.
func (t *table) bytes() int64 {
	const parent = 32 // estimate for a map entry of two words
	return int64(16*cap(t.starts) + cap(t.names) + parent*len(t.parents))
}

// cstring returns the bytes of b from offset up to the next NUL.
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
