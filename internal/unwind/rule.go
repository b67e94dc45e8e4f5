// Package unwind converts the unwind tables of files, which compilers write to .eh_frame and to the
// function tables of Go programs, to the form that BPF programs read (bpf/unwind.bpf.h), and
// manages the memory for them. It does not depend on BPF: maps are an interface.
package unwind

import (
	"math"
	"slices"
)

// Rule describes how to find the caller's frame, in the layout of struct unwind_rules. 0 is no
// rule.
type Rule uint64

// Base is what the CFA is relative to (enum unwind_base).
type Base uint8

const (
	// BaseNone is the base of the zero rule.
	BaseNone Base = iota
	// BaseSP and BaseFP are the stack pointer and the frame pointer.
	BaseSP
	BaseFP
	// BaseAtFP is a value in memory: the CFA is stored at a distance from the frame pointer, which
	// points to its own saved value. Functions that align their stack use it.
	BaseAtFP
	// BasePLT is the stack pointer in the procedure linkage table.
	BasePLT
	// BaseSignal is the signal frame on the stack, for the code that signal handlers return to.
	BaseSignal
	// BaseEnd has no caller: this is the outermost frame.
	BaseEnd
	// BaseOther is anything else: the unwind table describes the frame, but a Rule cannot.
	BaseOther
)

// GoRule is set in rules from the function table of a Go program: UNWIND_RULE_GO.
const GoRule = 0x80

const wordSize = 8

// Row is the rule for the addresses from PC up to the PC of the next row.
type Row struct {
	PC   uint32
	Rule Rule
}

// newRule returns a rule. sp is the distance of the CFA from the base; fp and ra are the distances
// of the saved frame pointer and return address from the CFA, or 0 if they are not saved; all are
// in bytes. It returns the rule of BaseOther if a distance cannot be represented.
func newRule(base Base, sp, fp, ra int64) Rule {
	r := Rule(base)
	for i, distance := range []int64{sp, fp, ra} {
		words := distance / wordSize
		if distance%wordSize != 0 || words < math.MinInt16 || words > math.MaxInt16 {
			return Rule(BaseOther)
		}
		r |= Rule(uint16(words)) << (16 * (i + 1))
	}
	return r
}

// appendRow appends a row, unless it has the rule of the previous one.
func appendRow(rows []Row, pc uint32, rule Rule) []Row {
	n := len(rows)
	if n > 0 && rows[n-1].PC == pc {
		rows = rows[:n-1]
		n--
	}
	if n > 0 && rows[n-1].Rule == rule {
		return rows
	}
	if len(rows) == cap(rows) {
		// append grows large slices by a quarter only: all copies together take five times the memory.
		rows = slices.Grow(rows, max(len(rows), 8))
	}
	return append(rows, Row{pc, rule})
}
