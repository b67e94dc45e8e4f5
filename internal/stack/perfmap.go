package stack

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// maxPerfMap bounds what is read of a perf map.
const maxPerfMap = 256 << 20

// perfMapPath is where a JIT compiler writes the functions it made, with the
// pid that the process has within its own namespace.
func perfMapPath(pid int) string {
	return fmt.Sprintf("/tmp/perf-%d.map", pid)
}

// parsePerfMap builds a table of lines "start size name", both numbers in
// hexadecimal. A line takes the place of earlier ones that it overlaps, whose
// code has been freed. Lines that are not of the form are left out, as the
// last one may be while the process writes it.
func parsePerfMap(r io.Reader) (*table, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPerfMap))
	if err != nil {
		return nil, fmt.Errorf("read perf map: %w", err)
	}
	var symbols []symbol
	var names []byte
	for line := range bytes.Lines(data) {
		s, name, ok := parsePerfLine(line)
		if !ok {
			continue
		}
		s.name = uint32(len(names))
		names = append(append(names, name...), 0)
		symbols = append(symbols, s)
	}
	return newTable(latest(symbols), slices.Clip(names)), nil
}

func parsePerfLine(line []byte) (s symbol, name []byte, ok bool) {
	start, rest := parseHex(line)
	size, name := parseHex(bytes.TrimPrefix(rest, []byte(" ")))
	name, complete := bytes.CutSuffix(name, []byte("\n"))
	name, spaced := bytes.CutPrefix(name, []byte(" "))
	ok = complete && spaced && len(name) > 0
	return symbol{start: start, end: start + size}, name, ok
}

// latest keeps, of symbols in the order they were written, those that no later
// one overlaps. Names are in the order of writing and so tell the time.
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
