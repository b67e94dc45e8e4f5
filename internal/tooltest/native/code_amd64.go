package native

import "debug/elf"

const (
	machine   = elf.EM_X86_64
	irelative = uint64(elf.R_X86_64_IRELATIVE)
	// returnRegister is DWARF's number of the return address.
	returnRegister = 16
)

// atEntry describes the frame at the entry of functions: the CFA is rsp + 8, the return address is below it.
func atEntry() []byte { return []byte{0x0c, 7, 8, 0x80 | returnRegister, 1} }

// withinCode describes how it changes: it does not.
func withinCode() []byte { return nil }

// code is every function: it calls rbx, if that is one, sleeps what r13 points to, however
// often it is woken, and returns r12. It does not sleep at all for no time: a collector of
// garbage that wants to stop the goroutine would wake it each time, and both go on for ever.
func code() []byte {
	return []byte{
		0x90,             // nop
		0x48, 0x85, 0xdb, // test rbx, rbx
		0x74, 0x07, // jz to the first cmp
		0x48, 0x89, 0xd8, // mov rax, rbx
		0x31, 0xdb, // xor ebx, ebx
		0xff, 0xd0, // call rax
		0x49, 0x83, 0x7d, 0x00, 0x00, // cmp qword ptr [r13], 0
		0x75, 0x07, // jne to the mov of r13
		0x49, 0x83, 0x7d, 0x08, 0x00, // cmp qword ptr [r13 + 8], 0
		0x74, 0x13, // je to the mov of r12
		0x4c, 0x89, 0xef, // mov rdi, r13
		0x4c, 0x89, 0xee, // mov rsi, r13
		0xb8, 0x23, 0, 0, 0, // mov eax, SYS_nanosleep
		0x0f, 0x05, // syscall
		0x48, 0x83, 0xf8, 0xfc, // cmp rax, -EINTR
		0x74, 0xdf, // je to the first cmp
		0x4c, 0x89, 0xe0, // mov rax, r12
		0xc3, // ret
	}
}
