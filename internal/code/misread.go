package code

import "fmt"

// IsMisread reports whether the kernel misreads an x86-64 instruction when a uprobe is attached to
// it. text begins with the instruction.
//
// The kernel decodes the opcode without the opcode map that a VEX or EVEX prefix selects. It
// emulates vpbroadcastb from a register (EVEX.0F38 7A) as the short jump jp, and vpor (VEX.0F EB)
// as jmp, and it corrects the instruction pointer after vcmpps (VEX.0F C2) as after ret
// (branch_setup_xol_ops and arch_uprobe_analyze_insn in arch/x86/kernel/uprobes.c). So a uprobe
// changes what the program does. vpbroadcastb was observed not to be executed on Linux 6.18; the
// other opcodes follow from the source. strchr, strchrnul and memset of glibc begin with such
// instructions on CPUs with AVX-512.
func IsMisread(text []byte) bool {
	opcode := 0
	switch {
	case len(text) > 4 && text[0] == 0x62:
		opcode = 4
	case len(text) > 3 && text[0] == 0xc4:
		opcode = 3
	case len(text) > 2 && text[0] == 0xc5:
		opcode = 2
	default:
		return false
	}
	switch op := text[opcode]; op {
	case 0x90, 0x9a, 0x9d, 0xc2, 0xc3, 0xca, 0xcb, 0xe8, 0xe9, 0xea, 0xeb, 0xff:
		return true
	default:
		return op >= 0x70 && op <= 0x7f
	}
}

// Doubt returns "" for an x86-64 instruction at which uprobes are usual. For others it returns a text
// that is equal for instructions that the kernel refuses, or accepts, for the same reason: it has a
// table of opcodes, and refuses some prefixes (uprobe_init_insn in arch/x86/kernel/uprobes.c).
func Doubt(text []byte) string {
	if len(text) < 5 {
		return ""
	}
	switch text[0] {
	case 0x62:
		return fmt.Sprintf("EVEX %02x", text[4])
	case 0xc4:
		return fmt.Sprintf("VEX %02x", text[3])
	case 0xc5:
		return fmt.Sprintf("VEX %02x", text[2])
	case 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0xf0, 0xcc, 0xcd, 0xf4:
		return fmt.Sprintf("%02x", text[0])
	}
	return ""
}
