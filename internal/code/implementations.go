package code

import (
	"fmt"
	"slices"

	"github.com/corescope/corescope/internal/unwind"
)

// Implementations lists the functions that an IFUNC resolver (STT_GNU_IFUNC) can select: those in
// the file whose addresses it loads into registers.
//
// Returns ErrHidden.
func (t *Text) Implementations(start, size uint64) ([]uint64, error) {
	r := unwind.Range{Start: start, End: start + size}
	text, err := t.read(r)
	if err != nil {
		return nil, err
	}
	var all []uint64
	var pages [32]uint64 // arm64: page addresses in registers
	for at := 0; at < len(text); {
		pc := start + uint64(at)
		in, ok := t.decode(text[at:], pc)
		if !ok {
			return nil, fmt.Errorf("%w: the instruction at %#x is unknown", ErrHidden, pc)
		}
		address := in.Reference
		if t.isARM64 {
			address = references(text[at:], pc, &pages)
		}
		if f, ok := t.frames.Range(address); ok && f.Start == address && !slices.Contains(all, address) {
			all = append(all, address)
		}
		at += in.Size
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no implementations found in the resolver at %#x", ErrHidden, start)
	}
	slices.Sort(all)
	return all, nil
}
