package stack

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/corescope/corescope/internal/limit"
)

// perfMapPath returns the path of the perf map, where a JIT compiler writes its functions. pid is
// the PID in the innermost PID namespace of the process.
func perfMapPath(pid int) string {
	return fmt.Sprintf("/tmp/perf-%d.map", pid)
}

// perfMap has the lines of a perf map as symbols. Names are in the order of the file, so the offset
// of the name is also the order of symbols by time.
type perfMap struct {
	symbols []symbol
	names   []byte
	max     int // maximum number of functions
}

// parsePerfMap parses lines "start size name" with hexadecimal numbers. A line replaces earlier
// lines that it overlaps, because their code has been freed. Malformed lines are ignored, as is the
// last one if the process is still writing it.
//
// If the file exceeds a limit, it returns a [limit.Error] and a part: of too many bytes the last
// ones, because later lines replace earlier ones; of too many functions in these, the first ones.
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
	in := bufio.NewReader(io.NewSectionReader(r, start, maxBytes))
	if start > 0 { // the first line can be incomplete
		if err := skipLine(in); err != nil {
			return nil, fmt.Errorf("read perf map: %w", err)
		}
	}
	err := limit.Lines(in, func(line []byte) bool {
		s, name, ok := parsePerfLine(line)
		if !ok {
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

// skipLine reads to the end of a line of any length, or to the end of the input.
func skipLine(in *bufio.Reader) error {
	for {
		_, err := in.ReadSlice('\n')
		switch {
		case err == nil, errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

func parsePerfLine(line []byte) (s symbol, name []byte, ok bool) {
	start, rest := parseHex(line)
	size, name := parseHex(bytes.TrimPrefix(rest, []byte(" ")))
	name, spaced := bytes.CutPrefix(name, []byte(" "))
	return symbol{start: start, end: start + size}, name, spaced && len(name) > 0
}

// add adds a symbol. It returns false if there are too many symbols, or too many bytes of names.
func (m *perfMap) add(s symbol, name []byte) bool {
	if len(m.symbols) >= m.max || len(m.names)+len(name) >= limit.JITNames {
		m.compact()
		// Less than a quarter is free: it would soon be compacted again.
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
		name := cstring(m.names, s.name) // does not overlap what has been written to names
		s.name = uint32(len(names))
		names = append(append(names, name...), 0)
	}
	m.names = names
}

// latest removes symbols that later ones overlap, and sorts by address.
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
