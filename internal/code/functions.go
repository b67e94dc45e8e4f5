package code

import (
	"cmp"
	"slices"

	"github.com/corescope/corescope/internal/unwind"
)

// SetFunctions sets the ranges of functions from symbols, as addresses. They are used for functions
// without an entry in the unwind table, such as assembly. End equals Start if the symbol has no size.
func (t *Text) SetFunctions(all []unwind.Range) {
	t.functions = slices.DeleteFunc(all, func(r unwind.Range) bool {
		_, ok := t.frames.Range(r.Start)
		return ok
	})
	// Several symbols can have the same address: the longest range is the first.
	slices.SortFunc(t.functions, func(a, b unwind.Range) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	t.functions = slices.CompactFunc(t.functions, func(a, b unwind.Range) bool { return a.Start == b.Start })
	for i := range t.functions {
		t.boundFunction(i)
	}
}

// boundFunction determines the end of a function whose symbol has no size, which is before the next
// function. If it cannot be determined, the function stays empty.
func (t *Text) boundFunction(i int) {
	f := &t.functions[i]
	if f.End > f.Start {
		return
	}
	most := f.Start + maxBytes
	if i+1 < len(t.functions) {
		most = min(most, t.functions[i+1].Start)
	}
	f.End = f.Start
	for _, p := range t.segments {
		if f.Start >= p.Vaddr && f.Start < p.Vaddr+p.Filesz {
			f.End = t.endOf(f.Start, min(most, p.Vaddr+p.Filesz))
		}
	}
}

// endOf returns the end of the function at start: the first instruction that does not continue with
// the next one, and that no jump before it passes. It returns start if it finds none before most.
func (t *Text) endOf(start, most uint64) uint64 {
	const longest = 4096 // of assembly without a size
	text, err := t.read(unwind.Range{Start: start, End: min(most, start+longest)})
	if err != nil {
		return start
	}
	farthest := start
	for at := 0; at < len(text); {
		pc := start + uint64(at)
		in, ok := t.decode(text[at:], pc)
		if !ok || in.Kind == Unknown {
			return start
		}
		at += in.Size
		next := pc + uint64(in.Size)
		if (in.Kind == Branch || in.Kind == Jump) && in.Target < most {
			farthest = max(farthest, in.Target)
		}
		switch in.Kind {
		case Return, Jump, JumpIndirect, Stop:
			if next > farthest {
				return next
			}
		}
	}
	return start
}

// extent returns the range of the function, or of the part of one, that contains the address: from
// the unwind table, or from symbols.
func (t *Text) extent(pc uint64) (r unwind.Range, ok bool) {
	if r, ok = t.frames.Range(pc); ok {
		return r, true
	}
	i, found := slices.BinarySearchFunc(t.functions, pc, func(r unwind.Range, pc uint64) int { return cmp.Compare(r.Start, pc) })
	if !found {
		i--
	}
	if i < 0 || pc >= t.functions[i].End {
		return unwind.Range{}, false
	}
	return t.functions[i], true
}
