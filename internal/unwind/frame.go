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

// ErrTooMany is returned for a file with more rows than requested, or one that exceeds a limit of
// package limit.
var ErrTooMany = errors.New("too many rules")

func tooMany(unit string, maxCount int) error {
	return fmt.Errorf("%w: %w", ErrTooMany, &limit.Error{Input: "the file", Max: int64(maxCount), Unit: unit})
}

// section is the section .eh_frame.
type section struct {
	data  []byte
	vaddr uint64
	order binary.ByteOrder
	regs  registers
}

// frameRows returns the unwind table in .eh_frame, or nil if there is none. Malformed entries are
// skipped.
func frameRows(f *elf.File, maxRows int) ([]Row, error) {
	s, err := readSection(f)
	if err != nil || s == nil {
		return nil, err
	}
	return s.rows(maxRows)
}

// readSection reads .eh_frame. It returns nil if there is none or the architecture is not
// supported.
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

// cie is a common information entry.
type cie struct {
	codeAlign uint64
	dataAlign int64
	encoding  byte // of addresses
	sized     bool // FDEs have augmentation data after the addresses
	signal    bool // of signal trampolines
	code      []byte
}

// fde is a frame description entry: the instructions for the code of one function.
type fde struct {
	start, end uint64
	cie        *cie
	code       []byte
}

// padding is the largest size of alignment padding between functions, in bytes.
const padding = 16

// rows returns the rows of all functions, sorted by address, and a row without a rule per gap.
func (s *section) rows(maxRows int) ([]Row, error) {
	functions, err := s.functions()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(functions, func(a, b fde) int { return cmp.Compare(a.start, b.start) })
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
		if len(rows) > maxRows {
			return nil, tooMany("rules", maxRows)
		}
	}
	return appendRow(rows, uint32(end), 0), nil
}

// functions returns the FDEs of all functions, in the order of the section.
func (s *section) functions() ([]fde, error) {
	const typical = 48 // bytes of an FDE
	all := make([]fde, 0, min(len(s.data)/typical, limit.FrameFunctions))
	cies := map[int]*cie{}
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
		if f, ok := s.fde(r, s.cieAt(cies, begin-id)); ok {
			all = append(all, f)
		}
	}
	return all, nil
}

func (s *section) fde(r *reader, c *cie) (f fde, ok bool) {
	if c == nil {
		return f, false
	}
	f.cie = c
	f.start = r.address(c.encoding, s.vaddr)
	f.end = f.start + r.address(c.encoding&0x0f, 0)
	if c.sized {
		r.take(r.uleb())
	}
	f.code = r.data[r.at:]
	return f, !r.bad && len(f.code) <= limit.FrameProgram
}

// cieAt returns the CIE at an offset of the section, from known if possible. It is nil if
// malformed.
func (s *section) cieAt(known map[int]*cie, at int) *cie {
	c, ok := known[at]
	if !ok {
		c = s.cie(at)
		known[at] = c
	}
	return c
}

func (s *section) cie(at int) *cie {
	if at < 0 || at >= len(s.data) {
		return nil
	}
	r := &reader{data: s.data, at: at, order: s.order}
	size := r.number(4)
	if size > uint64(r.left()) { // also true for the 64-bit format, which compilers do not use
		return nil
	}
	r.data = s.data[:r.at+int(size)]
	if r.number(4) != 0 {
		return nil
	}
	version := r.byte()
	augmentation := r.text()
	if version == 4 {
		r.take(2) // sizes of addresses and segment selectors
	}
	c := &cie{codeAlign: r.uleb(), dataAlign: r.sleb()}
	returnRegister := r.uleb()
	if returnRegister != s.regs.ra || !c.augment(r, augmentation, s.vaddr) || r.bad {
		return nil
	}
	c.code = r.data[r.at:]
	return c
}

// augment parses the augmentation data. It returns false if it is malformed or has an unknown
// letter.
func (c *cie) augment(r *reader, letters string, vaddr uint64) bool {
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
		case 'B', 'G': // arm64: return addresses are signed with the B key; stack memory is tagged
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
