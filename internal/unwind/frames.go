package unwind

import (
	"cmp"
	"debug/elf"
	"math"
	"slices"
)

// Frames describes the frames of the functions in a file, by address, as .eh_frame does.
type Frames struct {
	section *section
	entries []fde // sorted by address, without overlaps
	atCall  Rule  // at the first instruction of a function
	// Unreadable reports that the file has unwind tables that were not read, or not completely.
	Unreadable bool

	last Range // the range that rows belongs to
	rows []Row
}

// Range is the code that one FDE describes: a function, or a part that the compiler has placed
// elsewhere.
type Range struct{ Start, End uint64 }

// ReadFrames reads .eh_frame. debug/elf can panic on crafted files: see [binary.File.Parse].
func ReadFrames(f *elf.File) (*Frames, error) {
	regs, ok := registersOf(f.Machine)
	s, err := readSection(f)
	if err != nil || !ok || s == nil {
		hasTables := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_GNU_EH_FRAME })
		return &Frames{Unreadable: hasTables && f.Section(".eh_frame") == nil}, err
	}
	fr := &Frames{section: s, atCall: newRule(BaseSP, 0, 0, 0)}
	if regs.pushed {
		fr.atCall = newRule(BaseSP, wordSize, 0, 0)
	}
	functions, err := s.functions()
	if err != nil {
		return &Frames{Unreadable: true}, err
	}
	all := slices.DeleteFunc(functions, func(fn fde) bool { return fn.end <= fn.start || fn.end > math.MaxUint32 })
	slices.SortFunc(all, func(a, b fde) int { return cmp.Compare(a.start, b.start) })
	end := uint64(0)
	for i := range all {
		if all[i].start >= end {
			fr.entries = append(fr.entries, all[i])
			end = all[i].end
		}
	}
	return fr, nil
}

// Ranges calls yield with all ranges, by address.
func (fr *Frames) Ranges(yield func(Range) bool) {
	for i := range fr.entries {
		if !yield(Range{fr.entries[i].start, fr.entries[i].end}) {
			return
		}
	}
}

// entry returns the index of the range that contains an address, or -1.
func (fr *Frames) entry(pc uint64) int {
	i, found := slices.BinarySearchFunc(fr.entries, pc, func(fn fde, pc uint64) int { return cmp.Compare(fn.start, pc) })
	if !found {
		i--
	}
	if i < 0 || pc >= fr.entries[i].end {
		return -1
	}
	return i
}

// Range returns the range that contains an address.
func (fr *Frames) Range(pc uint64) (Range, bool) {
	i := fr.entry(pc)
	if i < 0 {
		return Range{}, false
	}
	return Range{fr.entries[i].start, fr.entries[i].end}, true
}

// rowsAt returns the rows of the range that contains an address.
func (fr *Frames) rowsAt(pc uint64) []Row {
	i := fr.entry(pc)
	if i < 0 {
		return nil
	}
	if r := (Range{fr.entries[i].start, fr.entries[i].end}); fr.last != r {
		fr.last, fr.rows = r, fr.section.run(fr.rows[:0], &fr.entries[i])
	}
	return fr.rows
}

// HasFrame reports whether the function has changed its stack pointer, or moved the return address,
// when it is at this address. It is false for addresses outside all ranges.
func (fr *Frames) HasFrame(pc uint64) bool {
	rows := fr.rowsAt(pc)
	i, found := slices.BinarySearchFunc(rows, pc, func(r Row, pc uint64) int { return cmp.Compare(uint64(r.PC), pc) })
	if !found {
		i--
	}
	// Compilers do not describe when the frame pointer has been restored, so only the CFA and its
	// base are compared.
	return i >= 0 && rows[i].Rule != 0 && uint32(rows[i].Rule) != uint32(fr.atCall)
}

// Steps returns the addresses in a range at which its frame changes. Instructions begin there.
func (fr *Frames) Steps(r Range) (all []uint64) {
	for _, row := range fr.rowsAt(r.Start) {
		if uint64(row.PC) >= r.Start && uint64(row.PC) < r.End {
			all = append(all, uint64(row.PC))
		}
	}
	return all
}
