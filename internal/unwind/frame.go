package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/corescope/corescope/internal/limit"
)

// ErrTooMany is returned for a file whose table would have more rows than are asked for, or that exceeds
// a limit of package limit.
var ErrTooMany = errors.New("too many rules")

func tooMany(unit string, most int) error {
	return fmt.Errorf("%w: %w", ErrTooMany, &limit.Error{Input: "the file", Max: int64(most), Unit: unit})
}

// section is a part of a file that lies at an address.
type section struct {
	data  []byte
	vaddr uint64
	order binary.ByteOrder
	regs  registers
}

// frameRows makes the table of a file from its .eh_frame, empty if it has none. What is
// malformed of it is left out.
func frameRows(f *elf.File, most int) ([]Row, error) {
	s, err := readSection(f)
	if err != nil || s == nil {
		return nil, err
	}
	return s.rows(most)
}

// readSection reads .eh_frame, nil where a file has none.
func readSection(f *elf.File) (*section, error) {
	regs, ok := registersOf(f.Machine)
	s := f.Section(".eh_frame")
	if !ok || s == nil || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, nil
	}
	data, err := limit.Section(s, "the file", limit.Frames)
	if errors.Is(err, limit.ErrExceeded) {
		return nil, fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	if err != nil {
		return nil, err
	}
	return &section{data, s.Addr, f.ByteOrder, regs}, nil
}

// common is what functions have in common (a CIE).
type common struct {
	codeAlign uint64
	dataAlign int64
	encoding  byte // of addresses
	sized     bool // augmentation data follows the addresses of a function
	signal    bool
	code      []byte
}

// function is what is said of one function (an FDE).
type function struct {
	start, end uint64
	common     *common
	code       []byte
}

// padding is what may lie between functions that are aligned, and is no code.
const padding = 16

// rows lists those of all functions, by address, and one without a rule for each gap.
func (s *section) rows(most int) ([]Row, error) {
	functions, err := s.functions()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(functions, func(a, b function) int { return cmp.Compare(a.start, b.start) })
	var rows []Row
	var end uint64
	for i := range functions {
		f := &functions[i]
		if f.start < end || f.end > math.MaxUint32 || f.end <= f.start {
			continue
		}
		if f.start >= end+padding {
			rows = appendRow(rows, uint32(end), 0)
		}
		rows = s.run(rows, f)
		end = f.end
		if len(rows) > most {
			return nil, tooMany("rules", most)
		}
	}
	return appendRow(rows, uint32(end), 0), nil
}

// functions lists what there is, in the order of the section.
func (s *section) functions() ([]function, error) {
	var all []function
	commons := map[int]*common{}
	for at := 0; len(s.data)-at > 4; {
		if len(all) >= limit.FrameFunctions {
			return nil, tooMany("functions", limit.FrameFunctions)
		}
		r := &reader{data: s.data, at: at, order: s.order}
		size := r.number(4)
		if size == math.MaxUint32 {
			size = r.number(8)
		}
		begin := r.at
		r.data = s.data[:begin+int(min(size, uint64(len(s.data)-begin)))]
		at = len(r.data)
		if size == 0 {
			continue
		}
		id := int(r.number(4))
		if id == 0 {
			continue
		}
		if f, ok := s.function(r, s.commonAt(commons, begin-id)); ok {
			all = append(all, f)
		}
	}
	return all, nil
}

func (s *section) function(r *reader, c *common) (f function, ok bool) {
	if c == nil {
		return f, false
	}
	f.common = c
	f.start = r.address(c.encoding, s.vaddr)
	f.end = f.start + r.address(c.encoding&0x0f, 0)
	if c.sized {
		r.take(r.uleb())
	}
	f.code = r.data[r.at:]
	return f, !r.bad && len(f.code) <= limit.FrameProgram
}

// commonAt reads what lies at that place of the section, once; nil is what cannot be read.
func (s *section) commonAt(known map[int]*common, at int) *common {
	c, ok := known[at]
	if !ok {
		c = s.common(at)
		known[at] = c
	}
	return c
}

func (s *section) common(at int) *common {
	if at < 0 || at >= len(s.data) {
		return nil
	}
	r := &reader{data: s.data, at: at, order: s.order}
	size := r.number(4)
	if size > uint64(r.left()) { // also where it is one of 64 bits, which none is
		return nil
	}
	r.data = s.data[:r.at+int(size)]
	if r.number(4) != 0 {
		return nil
	}
	version := r.byte()
	augmentation := r.text()
	if version == 4 {
		r.take(2) // sizes of addresses and segments
	}
	c := &common{codeAlign: r.uleb(), dataAlign: r.sleb()}
	returnRegister := r.uleb()
	if returnRegister != s.regs.ra || !c.augment(r, augmentation, s.vaddr) || r.bad {
		return nil
	}
	c.code = r.data[r.at:]
	return c
}

// augment reads what the letters announce, and is false if one of them is not known.
func (c *common) augment(r *reader, letters string, vaddr uint64) bool {
	if letters == "" {
		return true
	}
	if letters[0] != 'z' {
		return false
	}
	c.sized = true
	size := r.uleb()
	end := uint64(r.at) + size
	for _, letter := range letters[1:] {
		switch letter {
		case 'R':
			c.encoding = r.byte()
		case 'L':
			r.byte()
		case 'P':
			r.address(r.byte()&0x0f, vaddr)
		case 'S':
			c.signal = true
		case 'B', 'G': // arm64: by which key return addresses are signed, tagged memory
		default:
			return false
		}
	}
	if r.bad || end > uint64(len(r.data)) {
		return false
	}
	r.at = int(end)
	return c.encoding&0x80 == 0 && c.encoding != encodingOmit
}
