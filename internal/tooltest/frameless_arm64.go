package tooltest

import (
	"debug/elf"
	"encoding/binary"
)

const framelessMachine = elf.EM_AARCH64

// framelessProgram is the same program as on amd64.
func framelessProgram() (functions []framelessFunction, common, data []byte) {
	common = []byte{
		1, 'z', 'R', 0, // version 1, augmentation: encoding of addresses
		4, 0x78, 30, // alignment factors 4 and -8; the return address is in x30
		1, 0x1b, // addresses: 4 bytes, relative to their own position
		0x0c, 31, 0, // def_cfa: sp
	}
	functions = []framelessFunction{
		{name: "_start", code: armWords(
			0xd280003d, // mov x29, 1: not a frame pointer
			0x94000002, // bl frameless_outer
			0xd4200000, // brk
		), frames: []byte{0x07, 30}}, // undefined: no return address
		{name: "frameless_outer", code: armWords(
			0xf81d0ffe, // str x30, [sp, -48]!
			0x94000003, // bl frameless_middle
			0xf84307fe, // ldr x30, [sp], 48
			0xd65f03c0, // ret
		), frames: []byte{0x41, 0x0e, 48, 0x9e, 6, 0x42, 0x0e, 0, 0xde}},
		{name: "frameless_middle", code: armWords(
			0xf8100ffe, // str x30, [sp, -256]!
			0x94000004, // bl frameless_leaf
			0xf94003fe, // ldr x30, [sp]
			0x910403ff, // add sp, sp, 256
			0xd65f03c0, // ret
		), frames: []byte{0x41, 0x0e, 0x80, 0x02, 0x9e, 32, 0x42, 0xde, 0x41, 0x0e, 0}},
		{name: "frameless_leaf", code: armWords(
			0xd2a00201, // mov x1, 2^20
			0xf1000421, // subs x1, x1, 1
			0x54ffffe1, // b.ne to the subs
			0x10000140, // adr x0, the data
			0xaa1f03e1, // mov x1, xzr
			0xd2800ca8, // mov x8, SYS_nanosleep
			0xd4000001, // svc 0
			0x92800c60, // mov x0, AT_FDCWD
			0xaa1f03e1, // mov x1, xzr
			0xaa1f03e2, // mov x2, xzr
			0xd2800708, // mov x8, SYS_openat
			0xd4000001, // svc 0
			0x17fffff4, // b to the start of the function
		)},
	}
	return functions, common, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x0d, 3, 0, 0, 0, 0, 0}
}

// assemblyProgram returns no program, because the stack is not searched for return addresses on
// arm64.
func assemblyProgram() (functions []framelessFunction, common []byte) { return nil, nil }

func wildCode() []byte {
	return armWords(
		0xd1400bff, // sub sp, sp, 8192
		0x910403fd, // add x29, sp, 256
		0xaa1d03e1, // mov x1, x29
		0xd2801902, // mov x2, 200
		0x91004023, // add x3, x1, 16
		0xa9000c23, // stp x3, x3, [x1]
		0xaa0303e1, // mov x1, x3
		0xf1000442, // subs x2, x2, 1
		0x54ffff81, // b.ne to the add
		0x14000000, // b to itself
	)
}

func armWords(all ...uint32) (b []byte) {
	for _, w := range all {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
