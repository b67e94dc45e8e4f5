package stack

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/corescope/corescope/internal/limit"
)

// perfMapPath is where a JIT compiler writes the functions it made, with the
// pid that the process has within its own namespace.
func perfMapPath(pid int) string {
	return fmt.Sprintf("/tmp/perf-%d.map", pid)
}

// perfMap holds the lines of a perf map as symbols. Names are in the order of writing, so their offsets
// order the symbols by time.
type perfMap struct {
	symbols []symbol
	names   []byte
	max     int // functions
}

// parsePerfMap builds a table of lines "start size name", both numbers in hexadecimal. A line replaces
// earlier ones that it overlaps, because their code has been freed. Lines of another form are left out,
// as is the last one if the process is still writing it.
//
// Of a file that exceeds a limit it returns a part, and a [limit.Error]: of the file's end, because
// later lines replace earlier ones; of this the first functions.
func parsePerfMap(r io.ReaderAt, size int64, path string) (*table, error) {
	return parsePerfMapUpTo(r, size, path, limit.PerfMapBytes, limit.JITFunctions)
}

func parsePerfMapUpTo(r io.ReaderAt, size int64, path string, maxBytes int64, maxFunctions int) (*table, error) {
	var exceeded error
	start := max(0, size-maxBytes)
	if start > 0 {
		exceeded = &limit.Error{Input: path, Max: maxBytes, Unit: "bytes"}
	}
	m := perfMap{max: maxFunctions}
	isPart := start > 0 // of a line
	err := limit.Lines(io.NewSectionReader(r, start, maxBytes), func(line []byte) bool {
		s, name, ok := parsePerfLine(line)
		if isPart || !ok {
			isPart = false
			return true
		}
		if !m.add(s, name) {
			exceeded = &limit.Error{Input: path, Max: int64(maxFunctions), Unit: "functions"}
			return false
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read perf map: %w", err)
	}
	return newTable(latest(m.symbols), slices.Clip(m.names)), exceeded
}

func parsePerfLine(line []byte) (s symbol, name []byte, ok bool) {
	start, rest := parseHex(line)
	size, name := parseHex(bytes.TrimPrefix(rest, []byte(" ")))
	name, spaced := bytes.CutPrefix(name, []byte(" "))
	return symbol{start: start, end: start + size}, name, spaced && len(name) > 0
}

// add adds a symbol. It returns false if there are too many, or their names are too long together.
func (m *perfMap) add(s symbol, name []byte) bool {
	if len(m.symbols) >= m.max || len(m.names)+len(name) >= limit.JITNames {
		m.compact()
		// Without a quarter to spare, it would be compacted again and again.
		if len(m.symbols) > m.max*3/4 || len(m.names)+len(name) > limit.JITNames*3/4 {
			return false
		}
	}
	s.name = uint32(len(m.names))
	m.names = append(append(m.names, name...), 0)
	m.symbols = append(m.symbols, s)
	return true
}

// compact removes symbols that later ones have replaced, and their names.
func (m *perfMap) compact() {
	m.symbols = latest(m.symbols)
	slices.SortFunc(m.symbols, func(a, b symbol) int { return cmp.Compare(a.name, b.name) })
	names := m.names[:0]
	for i := range m.symbols {
		s := &m.symbols[i]
		name := cstring(m.names, s.name) // at or behind the end of names
		s.name = uint32(len(names))
		names = append(append(names, name...), 0)
	}
	m.names = names
}

// latest keeps the symbols that no later one overlaps, in the order of their addresses.
func latest(symbols []symbol) []symbol {
	slices.SortFunc(symbols, func(a, b symbol) int {
		if a.start != b.start {
			return compareBool(a.start > b.start, b.start > a.start)
		}
		return int(b.name) - int(a.name)
	})
	kept := symbols[:0]
	for _, s := range symbols {
		last := len(kept) - 1
		if last < 0 || kept[last].end <= s.start {
			kept = append(kept, s)
		} else if s.name > kept[last].name {
			kept[last] = s
		}
	}
	return kept
}
