package code

import "encoding/binary"

// Prefixes and escapes of x86 instructions.
const (
	prefixOperand = 0x66
	prefixNotrack = 0x3e
	escape        = 0x0f
	vex3          = 0xc4
	vex2          = 0xc5
	evex          = 0x62
)

// bits is a set of byte values.
type bits [4]uint64

func (b *bits) has(op byte) bool { return b[op>>6]>>(op&63)&1 != 0 }

// setOf returns a set of ranges, given as pairs of first and last byte.
func setOf(pairs ...byte) (b bits) {
	for i := 0; i < len(pairs); i += 2 {
		for op := int(pairs[i]); op <= int(pairs[i+1]); op++ {
			b[op>>6] |= 1 << (op & 63)
		}
	}
	return b
}

// x86Tables are the properties of opcodes. The first index is the opcode map: 0 for one-byte
// opcodes, 1 for 0f, 2 for 0f 38, 3 for 0f 3a.
type x86Tables struct {
	invalid, modrm, imm8 [4]bits
	// imm32 operands have 2 bytes if there is an operand-size prefix, rel32 operands always have 4.
	imm32, rel32 [4]bits
}

func newX86Tables() *x86Tables {
	t := &x86Tables{}
	// One-byte opcodes that are neither prefixes nor instructions in 64-bit mode, and far jumps,
	// which user programs do not contain. XOP (8f with a group other than 0) and REX2 (d5) are not
	// supported.
	t.invalid[0] = setOf(0x06, 0x07, 0x0e, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x27, 0x2f, 0x2f, 0x37, 0x37, 0x3f, 0x3f,
		0x60, 0x62, 0x82, 0x82, 0x9a, 0x9a, 0xc4, 0xc5, 0xca, 0xcb, 0xce, 0xcf, 0xd4, 0xd6, 0xea, 0xea)
	t.modrm[0] = setOf(0x00, 0x03, 0x08, 0x0b, 0x10, 0x13, 0x18, 0x1b, 0x20, 0x23, 0x28, 0x2b, 0x30, 0x33, 0x38, 0x3b,
		0x63, 0x63, 0x69, 0x69, 0x6b, 0x6b, 0x80, 0x81, 0x83, 0x8f, 0xc0, 0xc1, 0xc6, 0xc7, 0xd0, 0xd3, 0xd8, 0xdf,
		0xf6, 0xf7, 0xfe, 0xff)
	t.imm8[0] = setOf(0x04, 0x04, 0x0c, 0x0c, 0x14, 0x14, 0x1c, 0x1c, 0x24, 0x24, 0x2c, 0x2c, 0x34, 0x34, 0x3c, 0x3c,
		0x6a, 0x6b, 0x70, 0x80, 0x83, 0x83, 0xa8, 0xa8, 0xb0, 0xb7, 0xc0, 0xc1, 0xc6, 0xc6, 0xcd, 0xcd, 0xe0, 0xe7, 0xeb, 0xeb)
	t.imm32[0] = setOf(0x05, 0x05, 0x0d, 0x0d, 0x15, 0x15, 0x1d, 0x1d, 0x25, 0x25, 0x2d, 0x2d, 0x35, 0x35, 0x3d, 0x3d,
		0x68, 0x69, 0x81, 0x81, 0xa9, 0xa9, 0xb8, 0xbf, 0xc7, 0xc7)
	t.rel32[0] = setOf(0xe8, 0xe9)

	t.invalid[1] = setOf(0x04, 0x04, 0x0a, 0x0a, 0x0c, 0x0c, 0x24, 0x27, 0x36, 0x36, 0x39, 0x39, 0x3b, 0x3f, 0x7a, 0x7b)
	// Opcodes without a ModRM byte.
	plain := setOf(0x04, 0x0c, 0x0e, 0x0e, 0x30, 0x37, 0x77, 0x77, 0x80, 0x8f, 0xa0, 0xa2, 0xa8, 0xaa, 0xc8, 0xcf)
	for i := range plain {
		t.modrm[1][i] = ^plain[i]
	}
	t.imm8[1] = setOf(0x0f, 0x0f, 0x70, 0x73, 0xa4, 0xa4, 0xac, 0xac, 0xba, 0xba, 0xc2, 0xc2, 0xc4, 0xc6)
	t.rel32[1] = setOf(0x80, 0x8f)

	t.modrm[2], t.modrm[3] = setOf(0x00, 0xff), setOf(0x00, 0xff)
	t.imm8[3] = setOf(0x00, 0xff)
	return t
}

// x86 decodes instructions of x86-64: their length and their effect on the control flow.
// golang.org/x/arch decodes more, but neither AVX nor endbr64, with which most functions begin.
type x86 struct{ *x86Tables }

// x86Instruction is a partly decoded instruction.
type x86Instruction struct {
	text    []byte
	at      int
	wide    bool // 64-bit operands
	operand bool // operand-size prefix: 16-bit operands
	notrack bool
	segment bool // segment or lock prefix
	rexB    bool // the register in the low bits of modrm is one of r8 to r15
	rexR    bool // the register in the middle bits of modrm is one of r8 to r15
	opcodes int  // opcode map
	opcode  byte
	modrm   byte
	vector  bool // VEX or EVEX prefix
}

func (x x86) decode(text []byte, pc uint64) (Instruction, bool) {
	in := &x86Instruction{text: text}
	if !in.prefixes() || !x.readOpcode(in) {
		return Instruction{}, false
	}
	size, ok := x.operands(in)
	in.at += size
	if !ok || in.at > len(text) || in.at > 15 {
		return Instruction{}, false
	}
	return in.instruction(pc), true
}

func (in *x86Instruction) next() (byte, bool) {
	if in.at >= len(in.text) {
		return 0, false
	}
	in.at++
	return in.text[in.at-1], true
}

// prefixes reads prefixes and the first byte of the opcode.
func (in *x86Instruction) prefixes() bool {
	for {
		b, ok := in.next()
		if !ok {
			return false
		}
		switch b {
		case prefixOperand:
			in.operand = true
		case prefixNotrack:
			in.notrack = true
		case 0x26, 0x2e, 0x36, 0x64, 0x65, 0xf0:
			in.segment = true
		case 0x67, 0xf2, 0xf3:
		default:
			if b&0xf0 == 0x40 {
				in.wide, in.rexR, in.rexB = b&8 != 0, b&4 != 0, b&1 != 0
				if b, ok = in.next(); !ok {
					return false
				}
			}
			in.opcode = b
			return true
		}
	}
}

// readOpcode reads the rest of the opcode.
func (x x86) readOpcode(in *x86Instruction) (ok bool) {
	switch in.opcode {
	case escape:
		in.opcodes = 1
		if in.opcode, ok = in.next(); !ok {
			return false
		}
		if second := in.opcode; second == 0x38 || second == 0x3a {
			in.opcodes = 2 + int(second>>1&1)
			in.opcode, ok = in.next()
			return ok
		}
	case vex2, vex3, evex:
		return in.vectorOpcode()
	}
	return !x.invalid[in.opcodes].has(in.opcode)
}

// vectorOpcode reads the rest of a VEX or EVEX prefix, and the opcode.
func (in *x86Instruction) vectorOpcode() (ok bool) {
	rest := map[byte]int{vex2: 1, vex3: 2, evex: 3}[in.opcode]
	in.opcodes, in.vector = 1, true
	if in.at+rest >= len(in.text) {
		return false
	}
	if first := in.text[in.at]; rest > 1 {
		in.opcodes = int(first & 0x1f)
		if rest == 3 {
			in.opcodes = int(first & 7)
		}
	}
	in.opcode = in.text[in.at+rest]
	in.at += rest + 1
	if in.opcodes == 5 || in.opcodes == 6 { // half-precision instructions: no immediate operands, like map 2
		in.opcodes = 2
	}
	return in.opcodes >= 1 && in.opcodes <= 3
}

// operands returns the number of bytes after the opcode.
func (x x86) operands(in *x86Instruction) (size int, ok bool) {
	if x.modrm[in.opcodes].has(in.opcode) {
		if size, ok = in.address(); !ok {
			return 0, false
		}
	}
	group, isLong := in.modrm>>3&7, false
	switch op := in.opcode; {
	case in.vector:
		isByte := x.imm8[in.opcodes].has(op) && (in.opcodes != 1 || op >= 0x70 && op <= 0x73 || op >= 0xc2)
		return size + one(isByte), true
	case in.opcodes != 0:
	case op >= 0xa0 && op <= 0xa3: // 64-bit address
		return 8, true
	case op == 0xc2:
		return 2, true
	case op == 0xc8:
		return 3, true
	case op == 0x8f && group != 0: // XOP
		return 0, false
	case op == 0xf6 && group < 2:
		return size + 1, true
	case op == 0xf7 && group < 2:
		isLong = true
	case op >= 0xb8 && op <= 0xbf && in.wide:
		return 8, true
	case op == 0xc7 && in.modrm == 0xf8: // xbegin
		return size + 4, true
	}
	switch {
	case x.rel32[in.opcodes].has(in.opcode):
		size += 4
	case isLong || x.imm32[in.opcodes].has(in.opcode):
		size += 4
		if in.operand && !in.wide {
			size -= 2
		}
	case x.imm8[in.opcodes].has(in.opcode):
		size++
	}
	return size, true
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// address returns the number of bytes of ModRM, SIB and displacement.
func (in *x86Instruction) address() (size int, ok bool) {
	if in.at >= len(in.text) {
		return 0, false
	}
	in.modrm = in.text[in.at]
	mod, rm := in.modrm>>6, in.modrm&7
	size = 1
	if mod == 3 {
		return size, true
	}
	if rm == 4 {
		if in.at+1 >= len(in.text) {
			return 0, false
		}
		size++
		rm = in.text[in.at+1] & 7
	}
	switch {
	case mod == 1:
		size++
	case mod == 2 || rm == 5:
		size += 4
	}
	return size, true
}

// instruction returns the effect of the decoded instruction.
func (in *x86Instruction) instruction(pc uint64) Instruction {
	out := Instruction{Size: in.at}
	group := in.modrm >> 3 & 7
	switch op := in.opcode; {
	case in.vector || in.opcodes > 1:
	case in.opcodes == 1:
		switch {
		case op >= 0x80 && op <= 0x8f:
			out.Kind, out.Target = Branch, in.relative(pc, 4)
		case op == 0x05, op == 0x34: // syscall, sysenter
			out.Kind = Syscall
		case op == 0x0b, op == 0xb9, op == 0xff: // ud2, ud1, ud0
			out.Kind = Stop
		}
	case op == 0x8d && in.modrm&0xc7 == 0x05: // lea of an address relative to rip
		out.Reference = in.relative(pc, 4)
	case op >= 0x70 && op <= 0x7f, op >= 0xe0 && op <= 0xe3:
		out.Kind, out.Target = Branch, in.relative(pc, 1)
	case op == 0xc7 && in.modrm == 0xf8:
		out.Kind, out.Target = Branch, in.relative(pc, 4)
	case op == 0xeb:
		out.Kind, out.Target = Jump, in.relative(pc, 1)
	case op == 0xe9:
		out.Kind, out.Target = Jump, in.relative(pc, 4)
	case op == 0xe8:
		out.Kind, out.Target = Call, in.relative(pc, 4)
	case op == 0xc2, op == 0xc3:
		// The kernel refuses to probe instructions with these prefixes (is_prefix_bad).
		out.Kind, out.Refused = Return, in.segment || in.notrack
	case op == 0xcd: // int
		out.Kind = Syscall
	case op == 0x01 && in.wide && in.modrm>>6 == 3: // add
		out.Sum = in.register(in.modrm, in.rexB)
	case op == 0x03 && in.wide && in.modrm>>6 == 3:
		out.Sum = in.register(in.modrm>>3, in.rexR)
	case op == 0xcc, op == 0xf4: // int3, hlt
		out.Kind = Stop
	case op == 0xff && group == 2:
		out.Kind = Call
	case op == 0xff && group == 4:
		out.Kind = JumpIndirect
		out.Within = in.notrack
		if in.modrm>>6 == 3 {
			out.By = in.register(in.modrm, in.rexB)
		}
	case op == 0xff && (group == 3 || group == 5): // far
		out.Kind = Unknown
	}
	return out
}

func (in *x86Instruction) relative(pc uint64, size int) uint64 {
	b := in.text[in.at-size : in.at]
	end := pc + uint64(in.at)
	if size == 1 {
		return end + uint64(int64(int8(b[0])))
	}
	return end + uint64(int64(int32(uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24)))
}

// register returns the register in three bits of modrm. upper selects r8 to r15.
func (in *x86Instruction) register(bits byte, upper bool) Register {
	if bits &= 7; upper {
		bits |= 8
	}
	return Register(bits) + 1
}

// slotX86 returns the GOT address that a PLT entry loads its target from, or 0.
func slotX86(text []byte, pc uint64) uint64 {
	at := 0
	if len(text) > 11 && text[0] == 0xf3 && text[1] == 0x0f && text[2] == 0x1e && text[3] == 0xfa { // endbr64
		at = 4
	}
	if text[at] == 0xf2 { // bnd
		at++
	}
	if text[at] != 0xff || text[at+1] != 0x25 { // jmp *distance(%rip)
		return 0
	}
	end := pc + uint64(at) + 6
	return end + uint64(int64(int32(binary.LittleEndian.Uint32(text[at+2:]))))
}
