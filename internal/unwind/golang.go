package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/stack"
)

// goFunctions is the function table of a Go program (runtime.pcHeader, Go 1.18 and later). It has a
// record per function, which refers to a table of frame sizes by address.
type goFunctions struct {
	count                uint64
	pairs, frames, names []byte
	flagAt               uint64 // offset of the flags in a function's record
	quantum              uint64 // unit of code sizes, in bytes
	text                 uint64
	order                binary.ByteOrder
	pushed               bool // calls push the return address
	rows                 []Row
	sized                []goFrame // memory for the result of sizes
}

// Flags of functions (runtime.funcFlag).
const (
	goTopFrame = 1 << iota // outermost function
	goSPWrite              // switches to another stack
)

// goRows returns the unwind table of a Go program, or nil if the file is not one. It is exact also
// for functions without a frame, whose caller is skipped when unwinding by frame pointer.
func goRows(path string, m elf.Machine, maxRows int) ([]Row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	var rows []Row
	err = stack.WithGoTable(file, info.Size(), path, func(table *stack.GoTable) {
		if g := newGoFunctions(table, m); g != nil {
			g.addAll(maxRows)
			rows = g.rows
		}
	})
	if errors.Is(err, limit.ErrExceeded) {
		return nil, fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	if err != nil {
		return nil, err
	}
	if len(rows) > maxRows {
		return nil, tooMany("rules", maxRows)
	}
	return rows, nil
}

// addAll appends the rows of all functions, up to one that is malformed or exceeds maxRows.
func (g *goFunctions) addAll(maxRows int) {
	const usual = 3 // rows of a function
	g.rows = make([]Row, 0, min(usual*g.count, uint64(maxRows)))
	for i := range g.count {
		if !g.add(i) || len(g.rows) > maxRows {
			return
		}
	}
}

// newGoFunctions reads the header. It returns nil if the version is not supported.
func newGoFunctions(t *stack.GoTable, m elf.Machine) *goFunctions {
	const header, word, words = 8, 8, 8
	const go118, go120 = 0xf0, 0xf1
	if len(t.Data) < header+words*word || t.Data[0] != go118 && t.Data[0] != go120 {
		return nil
	}
	number := func(i int) uint64 { return t.Order.Uint64(t.Data[header+i*word:]) }
	from := func(i int) []byte { return t.Data[min(number(i), uint64(len(t.Data))):] }
	g := &goFunctions{
		count: number(0), names: from(3), frames: from(6), pairs: from(7), flagAt: 41, quantum: uint64(t.Data[6]),
		text: t.Text, order: t.Order, pushed: m == elf.EM_X86_64,
	}
	if t.Data[0] == go118 { // records have no start line before Go 1.20
		g.flagAt = 37
	}
	const pair = 8
	if g.count > uint64(len(g.pairs))/pair-1 {
		return nil
	}
	return g
}

func (g *goFunctions) number(b []byte, at uint64) uint64 {
	return uint64(g.order.Uint32(b[at:]))
}

// add appends the rows of function i. It returns false if the table is malformed.
func (g *goFunctions) add(i uint64) bool {
	const pair, nameAt, frameAt = 8, 4, 16
	start, end := g.text+g.number(g.pairs, i*pair), g.text+g.number(g.pairs, (i+1)*pair)
	record := g.number(g.pairs, i*pair+4)
	if end > math.MaxUint32 || end <= start || record+g.flagAt >= uint64(len(g.pairs)) {
		return false
	}
	if n := len(g.rows); n > 0 && uint32(start) < g.rows[n-1].PC {
		return false
	}
	r := g.pairs[record:]
	name := g.name(g.number(r, nameAt))
	switch flags := r[g.flagAt]; {
	case string(name) == "runtime.sigreturn__sigaction":
		g.addReturn(uint32(start))
	case flags&goTopFrame != 0 && string(name) != "runtime.sigtramp":
		g.rows = appendRow(g.rows, uint32(start), newRule(BaseEnd, 0, 0, 0))
	default:
		g.addFrames(start, end, g.number(r, frameAt), flags&goSPWrite != 0)
	}
	g.rows = appendRow(g.rows, uint32(end), 0)
	return true
}

// addReturn appends the row of the function that signal handlers return to. The return address is
// the start of the function, and is looked up one byte before, so the row begins there.
func (g *goFunctions) addReturn(start uint32) {
	start--
	if n := len(g.rows); n > 0 && g.rows[n-1].PC >= start {
		g.rows = g.rows[:n-1]
	}
	g.rows = appendRow(g.rows, start, newRule(BaseSignal, 0, 0, 0))
}

// name returns the name of a function, without the suffix of its ABI.
func (g *goFunctions) name(at uint64) []byte {
	b, _, _ := bytes.Cut(g.names[min(at, uint64(len(g.names))):], []byte{0})
	return bytes.TrimSuffix(b, []byte(".abi0"))
}

// goFrame is the frame size of a function from an address on.
type goFrame struct {
	pc   uint64
	size int64
}

// sizes returns the frame sizes of a function, valid until the next call.
func (g *goFunctions) sizes(start, end, at uint64) []goFrame {
	all := g.sized[:0]
	r := &reader{data: g.frames, at: int(at), order: g.order}
	size, pc := int64(-1), start
	for pc < end && !r.bad {
		delta := r.uleb()
		if delta == 0 && pc != start {
			break
		}
		size += int64(delta>>1) ^ -int64(delta&1)
		all = append(all, goFrame{pc, size})
		pc += r.uleb() * g.quantum
	}
	g.sized = all
	return all
}

// addFrames appends a row for each change of the frame size of a function.
func (g *goFunctions) addFrames(start, end, at uint64, switches bool) {
	if at == 0 || at >= uint64(len(g.frames)) {
		g.rows = appendRow(g.rows, uint32(start), 0)
		return
	}
	frames := g.sizes(start, end, at)
	if switches {
		g.addSwitching(start, end, frames)
		return
	}
	for _, f := range frames {
		g.rows = appendRow(g.rows, uint32(f.pc), g.rule(f.size))
	}
}

// goPrologue is the maximum size of the instructions that set the frame pointer after the frame was
// allocated.
const goPrologue = 12

// addSwitching appends the rows of a function that switches to another stack. If it has a frame, it does so
// after the prologue has set the frame pointer, and returns to its own stack before the frame is released.
// Otherwise the stack pointer is that of either stack, and there is no rule.
func (g *goFunctions) addSwitching(start, end uint64, frames []goFrame) {
	hasBody := func(f goFrame) bool { return f.size > wordSize }
	if !slices.ContainsFunc(frames, hasBody) {
		g.rows = appendRow(g.rows, uint32(start), 0)
		return
	}
	for i, f := range frames {
		g.rows = appendRow(g.rows, uint32(f.pc), g.rule(f.size))
		next := end
		if i+1 < len(frames) {
			next = frames[i+1].pc
		}
		if switched := f.pc + goPrologue; hasBody(f) && switched < next {
			g.rows = appendRow(g.rows, uint32(switched), g.switchedRule(f.size))
		}
	}
}

// switchedRule returns the rule for a frame size if the stack pointer is that of another stack.
func (g *goFunctions) switchedRule(size int64) Rule {
	if g.pushed {
		return newRule(BaseFP, 2*wordSize, -2*wordSize, -wordSize).markGo()
	}
	return newRule(BaseFP, size+wordSize, -size-wordSize, -size).markGo()
}

// rule returns the rule for a frame size in bytes. On amd64, the return address is above the frame,
// and the saved frame pointer at the top of the frame. On arm64, the saved return address is at the
// bottom of the frame, and the saved frame pointer one word below.
func (g *goFunctions) rule(size int64) Rule {
	switch {
	case size < 0:
		return 0
	case g.pushed && size == 0:
		return newRule(BaseSP, wordSize, 0, -wordSize).markGo()
	case g.pushed:
		return newRule(BaseSP, size+wordSize, -2*wordSize, -wordSize).markGo()
	case size == 0:
		return newRule(BaseSP, 0, 0, 0).markGo()
	}
	return newRule(BaseSP, size, -size-wordSize, -size).markGo()
}

// markGo sets GoRule, except in the zero rule.
func (r Rule) markGo() Rule {
	if r == 0 {
		return 0
	}
	return r | GoRule
}

// merge replaces the rows in the range of Go functions by those from the Go function table.
func merge(frames, golang []Row) []Row {
	if len(golang) == 0 {
		return frames
	}
	if len(frames) == 0 {
		return golang
	}
	first, last := golang[0].PC, golang[len(golang)-1].PC
	rows := make([]Row, 0, len(frames)+len(golang))
	var rule Rule // of other languages, after the Go functions
	for _, r := range frames {
		if r.PC < first {
			rows = append(rows, r)
		} else if r.PC <= last {
			rule = r.Rule
		}
	}
	rows = append(rows, golang[:len(golang)-1]...)
	rows = append(rows, Row{last, rule})
	for _, r := range frames {
		if r.PC > last {
			rows = append(rows, r)
		}
	}
	return rows
}
