// Package unwind makes tables that tell how to find the callers of functions without frame
// pointers, from what compilers say of that in programs and libraries: the section
// .eh_frame. It keeps them, for the processes that are looked at, where the kernel's programs
// follow them (bpf/unwind.bpf.h); it knows no BPF.
package unwind

import "math"

// Rule tells how to find the caller, as struct unwind_rules has it. The zero Rule is none.
type Rule uint64

// Base is what a rule counts the caller's stack pointer from: enum unwind_base.
type Base uint8

const (
	// BaseNone is that of the zero rule.
	BaseNone Base = iota
	// BaseSP and BaseFP are registers.
	BaseSP
	BaseFP
	// BaseAtFP is in memory, at a distance of the frame pointer, which leads to its saved
	// value: in functions that align their stacks.
	BaseAtFP
	// BasePLT is the stack pointer in a table of jumps to other files.
	BasePLT
	// BaseSignal is where a handler of signals returns to.
	BaseSignal
	// BaseEnd is the outermost function.
	BaseEnd
)

// GoRule marks a rule from the tables of a Go program: UNWIND_RULE_GO.
const GoRule = 0x80

const wordSize = 8

// Row is the rule for the addresses from PC to the next row's.
type Row struct {
	PC   uint32
	Rule Rule
}

// newRule makes a rule of distances in bytes: of the caller's stack pointer from the base,
// of the saved frame pointer and of the return address from that, 0 for what was not saved.
// It is the zero rule where these do not fit.
func newRule(base Base, sp, fp, ra int64) Rule {
	r := Rule(base)
	for i, distance := range []int64{sp, fp, ra} {
		words := distance / wordSize
		if distance%wordSize != 0 || words < math.MinInt16 || words > math.MaxInt16 {
			return 0
		}
		r |= Rule(uint16(words)) << (16 * (i + 1))
	}
	return r
}

// appendRow appends a row, but for one that changes nothing.
func appendRow(rows []Row, pc uint32, rule Rule) []Row {
	n := len(rows)
	if n > 0 && rows[n-1].PC == pc {
		rows = rows[:n-1]
		n--
	}
	if n > 0 && rows[n-1].Rule == rule {
		return rows
	}
	return append(rows, Row{pc, rule})
}
