package native

import (
	"debug/elf"
	"encoding/binary"
)

const (
	machine   = elf.EM_AARCH64
	irelative = uint64(elf.R_AARCH64_IRELATIVE)
	// returnRegister is the DWARF register number of the return address.
	returnRegister = 30
)

// atEntry returns the call frame instructions for the entry of functions: the CFA is sp.
func atEntry() []byte { return []byte{0x0c, 31, 0} }

// withinCode returns the call frame instructions after the entry: after the str, the CFA is sp + 16
// and x30 is saved at CFA - 16; after the ldr, the frame is as at the entry.
func withinCode() []byte {
	return []byte{0x40 | 12, 0x0e, 16, 0x80 | returnRegister, 2, 0x40 | 16, 0x0e, 0, 0xc0 | returnRegister}
}

// code returns the code of every function: it calls x14 if that is not 0, sleeps for the timespec
// that x13 points to, also if interrupted by signals, and returns x12. It makes no system call for
// a duration of 0, see amd64.
func code() (b []byte) {
	for _, word := range []uint32{
		0xd503201f, // nop
		0xb40000ce, // cbz x14, to the ldp
		0xf81f0ffe, // str x30, [sp, -16]!
		0xaa0e03e9, // mov x9, x14
		0xaa1f03ee, // mov x14, xzr
		0xd63f0120, // blr x9
		0xf84107fe, // ldr x30, [sp], 16
		0xa94005a0, // ldp x0, x1, [x13]
		0xaa010000, // orr x0, x0, x1
		0xb40000e0, // cbz x0, to the mov of x12
		0xaa0d03e0, // mov x0, x13
		0xaa0d03e1, // mov x1, x13
		0xd2800ca8, // mov x8, SYS_nanosleep
		0xd4000001, // svc 0
		0xb100101f, // cmn x0, EINTR
		0x54ffff00, // b.eq to the ldp
		0xaa0c03e0, // mov x0, x12
		0xd65f03c0, // ret
	} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return b
}

// spinCode returns a function without a stack frame that counts down from n.
func spinCode(n uint32) (code []byte) {
	for _, instruction := range []uint32{
		0x52800009 | n&0xffff<<5, // mov w9, the lower half of n
		0x72a00009 | n>>16<<5,    // movk w9, the upper half, lsl 16
		0x71000529,               // subs w9, w9, 1
		0x54ffffe1,               // b.ne to the subs
		0xd65f03c0,               // ret
	} {
		code = binary.LittleEndian.AppendUint32(code, instruction)
	}
	return code
}
