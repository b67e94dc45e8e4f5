package native

import "debug/elf"

const (
	machine   = elf.EM_X86_64
	irelative = uint64(elf.R_X86_64_IRELATIVE)
	// returnRegister is the DWARF register number of the return address.
	returnRegister = 16
)

// atEntry returns the call frame instructions for the entry of functions: the CFA is rsp + 8, and
// the return address is at CFA - 8.
func atEntry() []byte { return []byte{0x0c, 7, 8, 0x80 | returnRegister, 1} }

// withinCode returns the call frame instructions after the entry: the frame does not change.
func withinCode() []byte { return nil }

// code returns the code of every function: it calls rbx if that is not 0, sleeps for the timespec
// that r13 points to, also if interrupted by signals, and returns r12. It makes no system call for
// a duration of 0: signals of the garbage collector, to stop the goroutine, could otherwise
// interrupt and restart it forever.
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

// spinCode returns a function without a stack frame that counts down from n.
func spinCode(n uint32) []byte {
	return []byte{
		0xb9, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), // mov ecx, n
		0xff, 0xc9, // dec ecx
		0x75, 0xfc, // jnz to the dec
		0xc3, // ret
	}
}
