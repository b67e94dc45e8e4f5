package stack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
)

// pfx is the prefix of symbols for the padding in front of functions. objtool generates them since
// Linux 6.2 (9f2899fe36a6); without them, the padding would belong to the previous function.
const pfx = "__pfx_"

// isPadding reports whether a symbol is that of the padding in front of a function.
func isPadding(name string) bool {
	return strings.HasPrefix(name, pfx) || strings.HasPrefix(name, "__cfi_")
}

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

// kallsymsParser collects symbols and their names.
type kallsymsParser struct {
	symbols  []symbol
	names    []byte
	hidden   int
	previous []byte // name and module of the previous line, a part of names
}

// line parses "address type name[\tmodule]".
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
		bound: !isCode(kind) || addr == 0 || isMarker(name),
	})
	return nil
}

// intern stores a name and returns its offset. A function that follows its __pfx_ symbol, as most
// do, shares the memory of that name.
func (p *kallsymsParser) intern(name []byte) uint32 {
	if !bytes.HasPrefix(p.previous, []byte(pfx)) || !bytes.Equal(p.previous[len(pfx):], name) {
		p.names = append(append(p.names, name...), 0)
	}
	offset := len(p.names) - len(name) - 1
	p.previous = p.names[offset : offset+len(name)]
	return uint32(offset)
}

// limit sets the ends of all symbols, because kallsyms has no sizes.
func (p *kallsymsParser) limit() {
	sortSymbols(p.symbols, p.names)
	for i := range p.symbols {
		s := &p.symbols[i]
		s.end = p.reach(s, p.next(i))
	}
}

// next returns the first symbol with a higher address than symbol i, or nil.
func (p *kallsymsParser) next(i int) *symbol {
	for j := i + 1; j < len(p.symbols); j++ {
		if p.symbols[j].start != p.symbols[i].start {
			return &p.symbols[j]
		}
	}
	return nil
}

// reach returns the largest possible end of s. The code of a module is contiguous, so a function
// ends where the next one begins. The last function of a module is followed by data or by another
// module, perhaps far away; it ends with its page, which contains nothing else. A BPF program gets
// 64 KiB: it shares a 2 MiB area with programs that may have been loaded since kallsyms was read.
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

// adjoins reports whether the function called name ends where next begins.
func (p *kallsymsParser) adjoins(name []byte, next *symbol) bool {
	after := cstring(p.names, next.name)
	return bytes.Equal(moduleOf(name), moduleOf(after)) && (!next.bound || isMarker(after))
}

func moduleOf(name []byte) []byte {
	_, module, _ := bytes.Cut(name, []byte("\t"))
	return module
}

// isCode reports whether a symbol type, a letter as in nm(1), is that of code: text, or a weak
// symbol that is not an object.
func isCode(kind byte) bool {
	return strings.IndexByte("tTwWi", kind) >= 0
}

// isMarker reports whether name is a section boundary of the linker script or a mapping symbol of
// the assembler.
func isMarker(name []byte) bool {
	switch string(name) {
	case "_text", "_stext", "_etext", "_sinittext", "_einittext", "__pi__text":
		return true
	}
	return bytes.HasSuffix(name, []byte("text_start")) ||
		bytes.HasSuffix(name, []byte("text_end")) ||
		bytes.HasPrefix(name, []byte("$"))
}

// kallsymsRank returns the rank of a symbol among those of the same address; the lowest is used.
// Global functions are preferred, and the native name of a system call to its 32-bit name.
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

// parseHex parses a hexadecimal number with or without 0x and returns the bytes that follow it. If
// there is no number, rest is b.
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
