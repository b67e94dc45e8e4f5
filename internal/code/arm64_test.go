package code

import (
	"encoding/binary"
	"testing"
)

// TestARM64 decodes arm64 instructions. It runs on all architectures.
func TestARM64(t *testing.T) {
	const pc = 0x10000
	for word, want := range map[uint32]Instruction{
		0xd65f03c0: {Kind: Return},                   // ret
		0xd65f0bff: {Kind: Return, Refused: true},    // retaa
		0xd61f0200: {Kind: JumpIndirect, By: 16 + 1}, // br x16
		0x8b20c020: {Sum: 0 + 1},                     // add x0, x1, w0, sxtw
		0x8b000020: {Sum: 0 + 1},                     // add x0, x1, x0
		0xd4000001: {Kind: Syscall},                  // svc 0
		0x14000004: {Kind: Jump, Target: pc + 16},    // b
		0x97fffffc: {Kind: Call, Target: pc - 16},    // bl
		0x54000040: {Kind: Branch, Target: pc + 8},   // b.eq
		0xd503201f: {},                               // nop
	} {
		want.Size = 4
		got, ok := decodeARM64(binary.LittleEndian.AppendUint32(nil, word), pc)
		if !ok || got != want {
			t.Errorf("%#x: %+v, %v, want %+v", word, got, ok, want)
		}
	}
	// bti c; adrp x16, +2 pages; ldr x17, [x16, 0x18]; add x16, x16, 0x18
	var entry []byte
	for _, word := range []uint32{0xd503245f, 0xd0000010, 0xf9400e11, 0x91006210} {
		entry = binary.LittleEndian.AppendUint32(entry, word)
	}
	if at := slotARM64(entry, pc); at != pc+0x2000+0x18 {
		t.Errorf("arm64: slot at %#x, want %#x", at, pc+0x2000+0x18)
	}
	if at := slotX86([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0}, pc); at != pc+10+0x10 {
		t.Errorf("x86-64: slot at %#x, want %#x", at, pc+10+0x10)
	}
}
