package stack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
)

// pfx begins the symbols of the padding in front of functions, which objtool
// adds so that no table gives it to the function before (9f2899fe36a6, 6.2).
const pfx = "__pfx_"

func parseKallsyms(r io.Reader) (*table, error) {
	var p kallsymsParser
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if err := p.line(lines.Bytes()); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read kernel symbols: %w", err)
	}
	if len(p.symbols) == 0 || p.hidden == len(p.symbols) {
		return nil, ErrRestricted
	}
	p.limit()
	return newTable(p.symbols, bytes.Clone(p.names)), nil
}

// kallsymsParser gathers the symbols and their names.
type kallsymsParser struct {
	symbols  []symbol
	names    []byte
	hidden   int
	previous []byte // name and module of the last line, in names
}

// line adds "address type name[\tmodule]".
func (p *kallsymsParser) line(line []byte) error {
	addr, rest := parseHex(line)
	if len(rest) < 4 || rest[0] != ' ' || rest[2] != ' ' || len(rest) == len(line) {
		return fmt.Errorf("parse kernel symbols: malformed line %q", line)
	}
	kind, name := rest[1], rest[3:]
	if addr == 0 {
		p.hidden++
	}
	p.symbols = append(p.symbols, symbol{
		start: addr,
		end:   math.MaxUint64,
		name:  p.intern(name),
		rank:  kallsymsRank(kind, name),
		open:  true,
		mark:  !isCode(kind) || addr == 0 || isMarker(name),
	})
	return nil
}

// intern stores a name. Most functions follow their own __pfx_ symbol and
// share its memory.
func (p *kallsymsParser) intern(name []byte) uint32 {
	if !bytes.HasPrefix(p.previous, []byte(pfx)) || !bytes.Equal(p.previous[len(pfx):], name) {
		p.names = append(append(p.names, name...), 0)
	}
	offset := len(p.names) - len(name) - 1
	p.previous = p.names[offset : offset+len(name)]
	return uint32(offset)
}

// limit bounds the symbols whose end the next one does not tell.
func (p *kallsymsParser) limit() {
	sortSymbols(p.symbols, p.names)
	for i := range p.symbols {
		s := &p.symbols[i]
		s.end = p.reach(s, p.next(i))
	}
}

// next returns the first symbol behind i's address, or nil.
func (p *kallsymsParser) next(i int) *symbol {
	for j := i + 1; j < len(p.symbols); j++ {
		if p.symbols[j].start != p.symbols[i].start {
			return &p.symbols[j]
		}
	}
	return nil
}

// reach is how far s may be stretched. Code of one module is contiguous, so a
// function ends where the next begins. The last one of a module has no such
// end: what follows it is data or another module, far away perhaps; it gets
// the rest of its page, which holds nothing else. BPF programs share 2 MiB
// areas with programs that may have come after the symbols were read.
func (p *kallsymsParser) reach(s, next *symbol) uint64 {
	const page, program = 4096, 64 << 10
	name := cstring(p.names, s.name)
	if string(moduleOf(name)) == "[bpf]" {
		return s.start + program
	}
	if next != nil && p.adjoins(name, next) {
		return next.start
	}
	return s.start&^(page-1) + page
}

// adjoins reports whether next ends the code of the function name.
func (p *kallsymsParser) adjoins(name []byte, next *symbol) bool {
	after := cstring(p.names, next.name)
	return bytes.Equal(moduleOf(name), moduleOf(after)) && (!next.mark || isMarker(after))
}

func moduleOf(name []byte) []byte {
	_, module, _ := bytes.Cut(name, []byte("\t"))
	return module
}

// isCode tells functions by the letters of nm(1): text, and weak symbols that
// are no objects.
func isCode(kind byte) bool {
	return strings.IndexByte("tTwWi", kind) >= 0
}

// isMarker tells the symbols of the linker script that bound a section, and
// the mapping symbols of assemblers.
func isMarker(name []byte) bool {
	switch string(name) {
	case "_text", "_stext", "_etext", "_sinittext", "_einittext", "__pi__text":
		return true
	}
	return bytes.HasSuffix(name, []byte("text_start")) ||
		bytes.HasSuffix(name, []byte("text_end")) ||
		bytes.HasPrefix(name, []byte("$"))
}

// kallsymsRank prefers global functions, and of the names that a system call
// shares between the native and the 32-bit table the native one.
func kallsymsRank(kind byte, name []byte) uint8 {
	switch {
	case bytes.HasPrefix(name, []byte("__ia32_")):
		return 3
	case kind == 'T':
		return 0
	case kind == 't':
		return 1
	}
	return 2
}

// parseHex reads a hexadecimal number with or without 0x and returns what
// follows it; rest is b itself if there is none.
func parseHex(b []byte) (v uint64, rest []byte) {
	digits := bytes.TrimPrefix(b, []byte("0x"))
	i := 0
	for ; i < len(digits) && i < 16; i++ {
		d := hexDigit(digits[i])
		if d > 15 {
			break
		}
		v = v<<4 | uint64(d)
	}
	if i == 0 {
		return 0, b
	}
	return v, digits[i:]
}

func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}
