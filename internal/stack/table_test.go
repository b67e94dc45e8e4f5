package stack

import (
	"math/rand/v2"
	"testing"
)

// entry is a symbol with its name.
type entry struct {
	name   string
	symbol symbol
}

func makeTable(entries []entry) *table {
	var symbols []symbol
	names := []byte{0}
	for _, e := range entries {
		e.symbol.name = uint32(len(names))
		names = append(append(names, e.name...), 0)
		symbols = append(symbols, e.symbol)
	}
	return newTable(symbols, names)
}

func (t *table) at(addr uint64) string {
	if i := t.lookup(addr); i >= 0 {
		return string(t.name(i))
	}
	return ""
}

func TestTableLookup(t *testing.T) {
	sized := func(name string, start, end uint64) entry {
		return entry{name, symbol{start: start, end: end}}
	}
	open := func(name string, start, limit uint64) entry {
		return entry{name, symbol{start: start, end: limit, open: true}}
	}
	bound := func(name string, start uint64) entry {
		return entry{name, symbol{start: start, end: start + 100, open: true, bound: true}}
	}
	type want map[uint64]string
	tests := []struct {
		name    string
		entries []entry
		want    want
	}{
		{"empty", nil, want{0: "", 10: ""}},
		{"gap", []entry{sized("b", 30, 40), sized("a", 10, 20)},
			want{9: "", 10: "a", 19: "a", 20: "", 29: "", 30: "b", 39: "b", 40: "", ^uint64(0): ""}},
		{"nested", []entry{sized("a", 10, 100), sized("b", 20, 30), sized("c", 40, 50), sized("d", 42, 44)},
			want{15: "a", 25: "b", 30: "a", 39: "a", 41: "c", 43: "d", 45: "c", 60: "a", 100: ""}},
		{"overlap", []entry{sized("a", 10, 100), sized("b", 50, 150)}, want{49: "a", 99: "b", 149: "b", 150: ""}},
		{"open to next", []entry{open("a", 10, 1000), sized("b", 30, 40)}, want{29: "a", 30: "b", 40: ""}},
		{"open to limit", []entry{open("a", 10, 20), sized("b", 30, 40)}, want{19: "a", 20: "", 29: ""}},
		{"last open", []entry{open("a", 10, 20)}, want{19: "a", 20: ""}},
		{"label in function", []entry{sized("a", 10, 40), open("b", 20, 100)}, want{15: "a", 25: "a", 40: ""}},
		{"bound ends open symbol", []entry{open("a", 10, 100), bound("end", 20), open("b", 30, 100)}, want{19: "a", 20: "", 29: "", 30: "b"}},
		{"bound is not an alias", []entry{bound("start", 10), open("z", 10, 20)}, want{10: "z"}},
		{"empty symbol", []entry{sized("a", 10, 10)}, want{10: ""}},
		{"larger alias", []entry{sized("a", 10, 12), sized("b", 10, 20)}, want{11: "b", 15: "b"}},
		{"sized alias", []entry{open("a", 10, 90), sized("b", 10, 20)}, want{11: "b", 50: ""}},
		{"underscores", []entry{sized("__write", 10, 20), sized("write", 10, 20), sized("__libc_write", 10, 20)}, want{11: "write"}},
		{"vdso", []entry{sized("time", 10, 20), sized("__vdso_time", 10, 20)}, want{11: "__vdso_time"}},
		{"rank", []entry{{"a", symbol{start: 1, end: 5, rank: 2}}, {"b", symbol{start: 1, end: 5, rank: 1}}}, want{1: "b"}},
		{"more than 4 GiB", []entry{sized("a", 1, 1<<40+1)}, want{1 << 31: "a", 1 << 39: ""}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := makeTable(test.entries)
			for addr, want := range test.want {
				if got := table.at(addr); got != want {
					t.Errorf("%d: got %q, want %q", addr, got, want)
				}
			}
		})
	}
}

// TestTableCovers compares with a linear search.
func TestTableCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var entries []entry
		for i := range r.IntN(12) {
			start := r.Uint64N(60)
			entries = append(entries, entry{string(rune('a' + i)), symbol{start: start, end: start + r.Uint64N(30)}})
		}
		table := makeTable(entries)
		for addr := range uint64(100) {
			if got, want := table.at(addr), innermost(entries, addr); got != want {
				t.Fatalf("%+v: %d: got %q, want %q", entries, addr, got, want)
			}
		}
	}
}

// innermost returns the symbol with the highest start that contains addr. Of symbols with the same
// start, only the longest one counts, and of these the first by name.
func innermost(entries []entry, addr uint64) string {
	name, last := "", uint64(0)
	for _, e := range entries {
		if addr < e.symbol.start || addr >= e.symbol.end || isHidden(entries, e) {
			continue
		}
		if name == "" || e.symbol.start > last {
			name, last = e.name, e.symbol.start
		}
	}
	return name
}

func isHidden(entries []entry, e entry) bool {
	for _, o := range entries {
		if o.symbol.start == e.symbol.start &&
			(o.symbol.end > e.symbol.end || o.symbol.end == e.symbol.end && o.name < e.name) {
			return true
		}
	}
	return false
}
