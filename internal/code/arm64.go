package code

import "encoding/binary"

// decodeARM64 decodes an instruction. All instructions have four bytes.
func decodeARM64(text []byte, pc uint64) (Instruction, bool) {
	if len(text) < 4 {
		return Instruction{}, false
	}
	word := binary.LittleEndian.Uint32(text)
	in := Instruction{Size: 4}
	// target returns the target of a branch: bits is the width of the signed offset at bit shift,
	// in words.
	target := func(shift, bits uint) uint64 {
		return pc + uint64(int64(int32(word<<(32-bits-shift))>>(32-bits))*4)
	}
	switch {
	case word&0xfc000000 == 0x14000000: // b
		in.Kind, in.Target = Jump, target(0, 26)
	case word&0xfc000000 == 0x94000000: // bl
		in.Kind, in.Target = Call, target(0, 26)
	case word&0xff000000 == 0x54000000, word&0x7e000000 == 0x34000000: // b.cond, bc.cond, cbz, cbnz
		in.Kind, in.Target = Branch, target(5, 19)
	case word&0x7e000000 == 0x36000000: // tbz, tbnz
		in.Kind, in.Target = Branch, target(5, 14)
	case word&0xfffffc1f == 0xd65f0000: // ret
		in.Kind = Return
	case word == 0xd65f0bff, word == 0xd65f0fff: // retaa, retab: the kernel neither steps nor simulates them
		in.Kind, in.Refused = Return, true
	case word&0xfffffc1f == 0xd61f0000, word&0xfefff800 == 0xd61f0800: // br; braa and other authenticated forms
		in.Kind, in.By = JumpIndirect, Register(word>>5&31)+1
	case word&0xfffffc1f == 0xd63f0000, word&0xfefff800 == 0xd63f0800: // blr; blraa and other authenticated forms
		in.Kind = Call
	case word&0xffe0001f == 0xd4000001: // svc
		in.Kind = Syscall
	case word&0xffe00000 == 0x8b200000, word&0xff200000 == 0x8b000000: // add of registers
		in.Sum = Register(word&31) + 1
	case word&0xffff0000 == 0, word&0xffe0001f == 0xd4200000: // udf, brk
		in.Kind = Stop
	}
	return in, true
}

// references returns the address that an instruction computes in a register, or 0. An address is
// computed by two instructions: adrp sets the page, which is kept in pages, and add adds the
// offset.
func references(text []byte, pc uint64, pages *[32]uint64) uint64 {
	const page = 4096
	word := binary.LittleEndian.Uint32(text)
	to, from := word&31, word>>5&31
	switch {
	case word&0x9f000000 == 0x90000000: // adrp
		pages[to] = pc&^(page-1) + uint64(int64(pcRelative(word))*page)
	case word&0x9f000000 == 0x10000000: // adr
		return pc + uint64(int64(pcRelative(word)))
	case word&0xffc00000 == 0x91000000 && pages[from] != 0: // add of an immediate
		return pages[from] + uint64(word>>10&0xfff)
	}
	return 0
}

// pcRelative returns the 21-bit immediate of adr and adrp: its two low bits are at bit 29, the
// others at bit 5.
func pcRelative(word uint32) int32 {
	return int32(word<<8)>>13<<2&^3 | int32(word>>29&3)
}

// slotARM64 returns the GOT address that a PLT entry loads its target from, or 0.
func slotARM64(text []byte, pc uint64) uint64 {
	const bti = 0xd503245f
	if binary.LittleEndian.Uint32(text) == bti {
		text, pc = text[4:], pc+4
	}
	var pages [32]uint64
	references(text, pc, &pages)
	load := binary.LittleEndian.Uint32(text[4:])
	if page := pages[load>>5&31]; page != 0 && load&0xffc00000 == 0xf9400000 { // ldr with an immediate offset
		return page + uint64(load>>10&0xfff)*8
	}
	return 0
}
