package tooltest

import "debug/elf"

const framelessMachine = elf.EM_X86_64

// framelessProgram returns the functions in the order of the file, the body of their CIE, and the
// data after them: a timespec of 0.2 ms for nanosleep.
func framelessProgram() (functions []framelessFunction, common, data []byte) {
	common = []byte{
		1, 'z', 'R', 0, // version 1, augmentation: encoding of addresses
		1, 0x78, 16, // alignment factors 1 and -8; the return address is register 16
		1, 0x1b, // addresses: 4 bytes, relative to their own position
		0x0c, 7, 8, // def_cfa: rsp + 8
		0x90, 1, // offset: the return address is at CFA - 8
	}
	functions = []framelessFunction{
		{name: "_start", code: []byte{
			0xbd, 1, 0, 0, 0, // mov ebp, 1: not a frame pointer
			0xe8, 2, 0, 0, 0, // call frameless_outer
			0x0f, 0x0b, // ud2
		}, frames: []byte{0x07, 16}}, // undefined: no return address
		{name: "frameless_outer", code: []byte{
			0x48, 0x83, 0xec, 40, // sub rsp, 40
			0xe8, 5, 0, 0, 0, // call frameless_middle
			0x48, 0x83, 0xc4, 40, // add rsp, 40
			0xc3, // ret
		}, frames: []byte{0x44, 0x0e, 48, 0x40 + 9, 0x0e, 8}}, // def_cfa_offset, after 4 bytes and after 9
		{name: "frameless_middle", code: []byte{
			0x53,                               // push rbx
			0x48, 0x81, 0xec, 0x00, 0x01, 0, 0, // sub rsp, 256
			0xe8, 9, 0, 0, 0, // call frameless_leaf
			0x48, 0x81, 0xc4, 0x00, 0x01, 0, 0, // add rsp, 256
			0x5b, // pop rbx
			0xc3, // ret
		}, frames: []byte{0x41, 0x0e, 16, 0x83, 2, 0x47, 0x0e, 0x90, 0x02, 0x40 + 12, 0x0e, 16, 0x41, 0x0e, 8}},
		{name: "frameless_leaf", code: []byte{
			0xb9, 0, 0, 0x10, 0, // mov ecx, 2^20
			0xff, 0xc9, // dec ecx
			0x75, 0xfc, // jnz to the dec
			0x48, 0x8d, 0x3d, 29, 0, 0, 0, // lea rdi, the data
			0x31, 0xf6, // xor esi, esi
			0xb8, 35, 0, 0, 0, // mov eax, SYS_nanosleep
			0x0f, 0x05, // syscall
			0x48, 0xc7, 0xc7, 0x9c, 0xff, 0xff, 0xff, // mov rdi, AT_FDCWD
			0x31, 0xf6, // xor esi, esi
			0x31, 0xd2, // xor edx, edx
			0xb8, 0x01, 0x01, 0, 0, // mov eax, SYS_openat
			0x0f, 0x05, // syscall
			0xeb, 0xd3, // jmp to the start of the function
		}},
	}
	return functions, common, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x0d, 3, 0, 0, 0, 0, 0}
}

func assemblyProgram() (functions []framelessFunction, common []byte) {
	_, common, _ = framelessProgram()
	return []framelessFunction{
		{name: "_start", code: []byte{
			0xbd, 1, 0, 0, 0, // mov ebp, 1
			0xe8, 2, 0, 0, 0, // call assembly_outer
			0x0f, 0x0b, // ud2
		}, frames: []byte{0x07, 16}}, // undefined: no return address
		{name: "assembly_outer", code: []byte{
			0x48, 0x83, 0xec, 40, // sub rsp, 40
			0xe8, 13, 0, 0, 0, // call assembly_direct
			0xe8, 22, 0, 0, 0, // call assembly_indirect
			0xe8, 35, 0, 0, 0, // call assembly_spin
			0x0f, 0x0b, // ud2
		}, frames: []byte{0x44, 0x0e, 48}}, // def_cfa_offset after 4 bytes
		{name: "assembly_return", code: []byte{0xc3}},
		{name: "assembly_direct", code: []byte{
			0x48, 0x83, 0xec, 24, // sub rsp, 24
			0xe8, 0xf6, 0xff, 0xff, 0xff, // call assembly_return
			0x48, 0x83, 0xc4, 24, // add rsp, 24
			0xc3, // ret
		}, frames: []byte{0x44, 0x0e, 32, 0x40 + 9, 0x0e, 8}},
		{name: "assembly_indirect", code: []byte{
			0x48, 0x83, 0xec, 56, // sub rsp, 56
			0x48, 0x8d, 0x05, 0xe6, 0xff, 0xff, 0xff, // lea rax, assembly_return
			0xff, 0xd0, // call rax
			0x48, 0x83, 0xc4, 56, // add rsp, 56
			0xc3, // ret
		}, frames: []byte{0x44, 0x0e, 64, 0x40 + 13, 0x0e, 8}},
		{name: "assembly_spin", code: []byte{
			0x48, 0x81, 0xec, 0, 0x10, 0, 0, // sub rsp, 4096
			0xbd, 7, 0, 0, 0, // mov ebp, 7
			0xeb, 0xfe, // jmp to itself
		}, isBare: true},
	}, common
}

func wildCode() []byte {
	return []byte{
		0x48, 0x81, 0xec, 0, 0x20, 0, 0, // sub rsp, 8192
		0x48, 0x8d, 0xac, 0x24, 0, 1, 0, 0, // lea rbp, [rsp+256]
		0x48, 0x89, 0xef, // mov rdi, rbp
		0xb9, 200, 0, 0, 0, // mov ecx, 200
		0x48, 0x8d, 0x47, 16, // lea rax, [rdi+16]
		0x48, 0x89, 0x07, // mov [rdi], rax
		0x48, 0x89, 0x47, 8, // mov [rdi+8], rax
		0x48, 0x89, 0xc7, // mov rdi, rax
		0xff, 0xc9, // dec ecx
		0x75, 0xee, // jnz to the lea
		0xeb, 0xfe, // jmp to itself
	}
}
