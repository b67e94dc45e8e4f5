package unwind

import (
	"bytes"
	"debug/elf"
	"slices"
)

// registers are DWARF register numbers.
type registers struct {
	sp, fp, ra uint64
	// pushed is set if calls push the return address, so that it always is on the stack.
	pushed bool
}

func registersOf(m elf.Machine) (registers, bool) {
	switch m {
	case elf.EM_X86_64:
		return registers{sp: 7, fp: 6, ra: 16, pushed: true}, true
	case elf.EM_AARCH64:
		return registers{sp: 31, fp: 29, ra: 30}, true
	}
	return registers{}, false
}

// saved describes where the caller's value of a register is.
type saved struct {
	where    where
	distance int64
}

type where uint8

const (
	unchanged   where = iota // in the register
	inFrame                  // in memory, at a distance from the CFA
	atFP                     // in memory, at the address in the frame pointer
	undefined                // not saved; for the return address: this is the outermost frame
	unsupported              // not expressible as a Rule
)

// state is the state of the interpreter: the rules for the current address.
type state struct {
	base     Base
	distance int64
	fp, ra   saved
}

// rule converts the state to a Rule, to that of BaseOther if no other rule describes it.
func (s *state) rule(regs registers) Rule {
	const returnAddress = -8
	if s.ra.where == undefined {
		return newRule(BaseEnd, 0, 0, 0)
	}
	pushed := s.ra == saved{inFrame, returnAddress}
	if s.base == BaseNone || regs.pushed && !pushed || s.ra.where > inFrame {
		return Rule(BaseOther)
	}
	var fp int64
	switch {
	case s.base == BaseAtFP && s.fp.where == atFP:
	case s.base != BaseAtFP && s.fp.where == inFrame && s.fp.distance != 0:
		fp = s.fp.distance
	case s.base == BaseAtFP, s.fp.where != unchanged && s.fp.where != undefined:
		return Rule(BaseOther)
	}
	return newRule(s.base, s.distance, fp, s.ra.distance)
}

// machine interprets the call frame instructions of a function.
type machine struct {
	state
	regs       registers
	initial    state // after the instructions of the CIE
	remembered []state
	rows       []Row
	pc, end    uint64
}

// maxRemembered bounds the stack of remembered states.
const maxRemembered = 32

// run appends the rows of a function. Its last row has no rule if the instructions are malformed.
func (s *section) run(rows []Row, f *fde) []Row {
	if f.cie.signal {
		return appendRow(rows, uint32(f.start), newRule(BaseSignal, 0, 0, 0))
	}
	m := &machine{regs: s.regs, rows: rows, pc: f.start, end: f.end}
	ok := m.execute(&reader{data: f.cie.code, order: s.order}, f.cie, s.vaddr)
	m.initial = m.state
	ok = ok && m.execute(&reader{data: f.code, order: s.order}, f.cie, s.vaddr)
	if !ok {
		return appendRow(m.rows, uint32(m.pc), 0)
	}
	return appendRow(m.rows, uint32(m.pc), m.rule(m.regs))
}

// advance sets the current address and appends a row for the previous state.
func (m *machine) advance(pc uint64) bool {
	if pc < m.pc || pc >= m.end {
		return false
	}
	if pc > m.pc {
		m.rows = appendRow(m.rows, uint32(m.pc), m.rule(m.regs))
	}
	m.pc = pc
	return true
}

// execute interprets instructions. It returns false if they are malformed or not supported.
func (m *machine) execute(r *reader, c *cie, vaddr uint64) bool {
	for r.left() > 0 {
		op := r.byte()
		low := uint64(op & 0x3f)
		ok := true
		switch op & 0xc0 {
		case 0x40: // advance_loc
			ok = m.advance(m.pc + low*c.codeAlign)
		case 0x80: // offset
			m.save(low, saved{inFrame, int64(r.uleb()) * c.dataAlign})
		case 0xc0: // restore
			m.restore(low)
		default:
			ok = m.extended(op, r, c)
		}
		if !ok || r.bad {
			return false
		}
	}
	return true
}

// extended interprets an instruction without an operand in its first byte.
func (m *machine) extended(op byte, r *reader, c *cie) bool {
	switch op {
	case 0x00, 0x2d: // nop; negate_ra_state: the BPF program removes signatures of all return addresses
	case 0x02, 0x03, 0x04: // advance_loc1, 2, 4
		return m.advance(m.pc + r.number(1<<(op-0x02))*c.codeAlign)
	case 0x05: // offset_extended
		m.save(r.uleb(), saved{inFrame, int64(r.uleb()) * c.dataAlign})
	case 0x06: // restore_extended
		m.restore(r.uleb())
	case 0x07: // undefined
		m.save(r.uleb(), saved{undefined, 0})
	case 0x08: // same_value
		m.save(r.uleb(), saved{})
	case 0x09: // register
		m.save(r.uleb(), saved{unsupported, 0})
		r.uleb()
	case 0x0a: // remember_state
		if len(m.remembered) >= maxRemembered {
			return false
		}
		m.remembered = append(m.remembered, m.state)
	case 0x0b: // restore_state
		if len(m.remembered) == 0 {
			return false
		}
		m.state = m.remembered[len(m.remembered)-1]
		m.remembered = m.remembered[:len(m.remembered)-1]
	case 0x11, 0x2f: // offset_extended_sf, negative_offset_extended
		register, n := r.uleb(), int64(0)
		if op == 0x2f {
			n = -int64(r.uleb())
		} else {
			n = r.sleb()
		}
		m.save(register, saved{inFrame, n * c.dataAlign})
	case 0x10: // expression
		register := r.uleb()
		m.save(register, m.expression(r.take(r.uleb())))
	case 0x14, 0x15: // val_offset, val_offset_sf
		m.save(r.uleb(), saved{unsupported, 0})
		r.uleb()
	case 0x16: // val_expression
		m.save(r.uleb(), saved{unsupported, 0})
		r.take(r.uleb())
	case 0x2e: // args_size
		r.uleb()
	default:
		return m.define(op, r, c)
	}
	return true
}

// define interprets an instruction that defines the CFA. Other instructions, such as set_loc, are
// not supported, because compilers do not use them on x86-64 and arm64.
func (m *machine) define(op byte, r *reader, c *cie) bool {
	switch op {
	case 0x0c: // def_cfa
		m.base = m.regs.base(r.uleb())
		m.distance = int64(r.uleb())
	case 0x0d: // def_cfa_register
		m.base = m.regs.base(r.uleb())
	case 0x0e: // def_cfa_offset
		m.distance = int64(r.uleb())
	case 0x12: // def_cfa_sf
		m.base = m.regs.base(r.uleb())
		m.distance = r.sleb() * c.dataAlign
	case 0x13: // def_cfa_offset_sf
		m.distance = r.sleb() * c.dataAlign
	case 0x0f: // def_cfa_expression
		m.base, m.distance = m.regs.expression(r.take(r.uleb()), r)
	default:
		return false
	}
	return true
}

func (regs registers) base(register uint64) Base {
	switch register {
	case regs.sp:
		return BaseSP
	case regs.fp:
		return BaseFP
	}
	return BaseNone
}

func (m *machine) save(register uint64, at saved) {
	switch register {
	case m.regs.fp:
		m.fp = at
	case m.regs.ra:
		m.ra = at
	}
}

func (m *machine) restore(register uint64) {
	switch register {
	case m.regs.fp:
		m.fp = m.initial.fp
	case m.regs.ra:
		m.ra = m.initial.ra
	}
}

// DWARF expression operations.
const (
	opDeref = 0x06
	opLit0  = 0x30
	opBreg0 = 0x70
)

// expression supports one expression: the frame pointer itself. With it, functions that align their
// stack describe where they saved the frame pointer.
func (m *machine) expression(code []byte) saved {
	if bytes.Equal(code, []byte{opBreg0 + byte(m.regs.fp), 0}) {
		return saved{atFP, 0}
	}
	return saved{unsupported, 0}
}

// expression supports the CFA expressions of functions that align their stack, and of the PLT. For
// the PLT, the distance is the offset of the push instruction in an entry, times 8.
func (regs registers) expression(code []byte, r *reader) (Base, int64) {
	at := &reader{data: code, order: r.order}
	switch at.byte() {
	case opBreg0 + byte(regs.fp):
		if distance := at.sleb(); at.left() == 1 && at.byte() == opDeref {
			return BaseAtFP, distance
		}
	case opBreg0 + byte(regs.sp):
		// CFA = rsp + 8, and 8 more if rip & 15 >= n: after the push in a PLT entry
		const limitAt = 6
		want := []byte{opBreg0 + byte(regs.sp), 8, opBreg0 + byte(regs.ra), 0, opLit0 + 15, 0x1a, 0, 0x2a, opLit0 + 3, 0x24, 0x22}
		if len(code) != len(want) {
			break
		}
		n := code[limitAt] - opLit0
		same := slices.Clone(code)
		same[limitAt] = 0
		if n < 16 && bytes.Equal(same, want) {
			return BasePLT, int64(n) * wordSize
		}
	}
	return BaseNone, 0
}
