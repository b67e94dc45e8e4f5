package code

import (
	"cmp"
	"math"
	"slices"

	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/unwind"
)

// crossing is a direct jump or call from one range to another, except to the first instruction of a
// function.
type crossing struct{ from, to uint64 }

// sweepAll finds all crossings in the file. Jump tables are not decoded, because their targets are
// in ranges that direct jumps connect with the function.
func (t *Text) sweepAll() {
	if t.swept {
		return
	}
	t.swept = true
	t.left = limit.Code
	at := uint64(0)
	for r := range t.frames.Ranges {
		t.sweepGap(unwind.Range{Start: at, End: r.Start})
		t.sweepRange(r)
		at = r.End
	}
	t.sweepGap(unwind.Range{Start: at, End: math.MaxInt64})
	slices.SortFunc(t.crossings, func(a, b crossing) int { return cmp.Compare(a.to, b.to) })
}

// sweepGap decodes code without an entry in the unwind table.
func (t *Text) sweepGap(r unwind.Range) {
	for _, p := range t.segments {
		part := unwind.Range{Start: max(r.Start, p.Vaddr), End: min(r.End, p.Vaddr+p.Filesz)}
		const padding = 16
		if part.Start+padding < part.End {
			t.sweepRange(part)
		}
	}
}

// sweepRange decodes a range in pieces. It sets exceeded if the file has too much code.
func (t *Text) sweepRange(r unwind.Range) {
	const piece, longest = 1 << 20, 16
	for at := r.Start; at < r.End; {
		part := unwind.Range{Start: at, End: min(r.End, at+piece)}
		text, err := t.read(part)
		if err != nil {
			return
		}
		if t.left -= len(text); t.left < 0 || len(t.crossings) > limit.Jumps {
			t.exceeded = true
			return
		}
		end := len(text) - longest // an instruction can continue in the next piece
		if part.End == r.End {
			end = len(text)
		}
		n := t.sweepPiece(r, part.Start, text, end)
		if n == 0 {
			return
		}
		at += uint64(n)
	}
}

// sweepPiece decodes a piece up to end and returns the number of decoded bytes, or 0 if an
// instruction is unknown.
func (t *Text) sweepPiece(r unwind.Range, start uint64, text []byte, end int) (at int) {
	for at < end {
		pc := start + uint64(at)
		in, ok := t.decode(text[at:], pc)
		if !ok {
			return 0
		}
		at += in.Size
		if in.Target != 0 && t.crosses(r, pc, in) {
			t.crossings = append(t.crossings, crossing{pc, in.Target})
		}
	}
	return at
}

// crosses reports whether an instruction of the range r leads to another range, except to the first
// instruction of a function. Code without an entry in the unwind table consists of several functions.
func (t *Text) crosses(r unwind.Range, pc uint64, in Instruction) bool {
	to, ok := t.extent(in.Target)
	if !ok {
		return false
	}
	if in.Target >= r.Start && in.Target < r.End && (to == r || pc >= to.Start && pc < to.End) {
		return false
	}
	return in.Target != to.Start || in.Kind != Call && t.frames.HasFrame(to.Start)
}

// into returns the crossings into a range.
func (t *Text) into(r unwind.Range) []crossing {
	begin, _ := slices.BinarySearchFunc(t.crossings, r.Start, func(c crossing, pc uint64) int { return cmp.Compare(c.to, pc) })
	end, _ := slices.BinarySearchFunc(t.crossings, r.End, func(c crossing, pc uint64) int { return cmp.Compare(c.to, pc) })
	return t.crossings[begin:end]
}
