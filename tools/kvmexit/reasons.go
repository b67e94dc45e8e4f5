package kvmexit

import "strconv"

// Values of code on x86 (KVM_ISA_VMX and KVM_ISA_SVM).
const (
	vmx = 1
	svm = 2
)

// trap is the value of code on arm64 for which the reason is an exception class (ARM_EXCEPTION_TRAP).
const trap = 2

// reasonName returns the name of a reason, or its number in hexadecimal if it has none.
func reasonName(arch string, reason, code uint32) string {
	name := ""
	switch {
	case arch == "arm64":
		if code &^= 1 << 31; code == trap { // the highest bit is set if an SError is pending
			name = armClasses[reason]
		} else if int(code) < len(armExceptions) {
			return armExceptions[code]
		}
	case code == vmx:
		name = vmxReasons[reason&0xffff] // the upper half has flags
	case code == svm:
		name = svmReason(reason)
	}
	if name == "" {
		return "0x" + strconv.FormatUint(uint64(reason), 16)
	}
	return name
}

// vmxReasons are the reasons of Intel processors (arch/x86/include/uapi/asm/vmx.h).
var vmxReasons = map[uint32]string{
	0: "EXCEPTION_NMI", 1: "EXTERNAL_INTERRUPT", 2: "TRIPLE_FAULT", 3: "INIT_SIGNAL", 4: "SIPI_SIGNAL", 6: "OTHER_SMI",
	7: "INTERRUPT_WINDOW", 8: "NMI_WINDOW", 9: "TASK_SWITCH", 10: "CPUID", 12: "HLT", 13: "INVD", 14: "INVLPG", 15: "RDPMC",
	16: "RDTSC", 18: "VMCALL", 19: "VMCLEAR", 20: "VMLAUNCH", 21: "VMPTRLD", 22: "VMPTRST", 23: "VMREAD", 24: "VMRESUME",
	25: "VMWRITE", 26: "VMOFF", 27: "VMON", 28: "CR_ACCESS", 29: "DR_ACCESS", 30: "IO_INSTRUCTION", 31: "MSR_READ",
	32: "MSR_WRITE", 33: "INVALID_STATE", 34: "MSR_LOAD_FAIL", 36: "MWAIT_INSTRUCTION", 37: "MONITOR_TRAP_FLAG",
	39: "MONITOR_INSTRUCTION", 40: "PAUSE_INSTRUCTION", 41: "MCE_DURING_VMENTRY", 43: "TPR_BELOW_THRESHOLD",
	44: "APIC_ACCESS", 45: "EOI_INDUCED", 46: "GDTR_IDTR", 47: "LDTR_TR", 48: "EPT_VIOLATION", 49: "EPT_MISCONFIG",
	50: "INVEPT", 51: "RDTSCP", 52: "PREEMPTION_TIMER", 53: "INVVPID", 54: "WBINVD", 55: "XSETBV", 56: "APIC_WRITE",
	57: "RDRAND", 58: "INVPCID", 59: "VMFUNC", 60: "ENCLS", 61: "RDSEED", 62: "PML_FULL", 63: "XSAVES", 64: "XRSTORS",
	67: "UMWAIT", 68: "TPAUSE", 74: "BUS_LOCK", 75: "NOTIFY",
}

// svmReason names the reasons of AMD processors (arch/x86/include/uapi/asm/svm.h).
func svmReason(reason uint32) string {
	for _, group := range []struct {
		first, n uint32
		name     string
	}{
		{0x00, 16, "READ_CR"}, {0x10, 16, "WRITE_CR"}, {0x20, 16, "READ_DR"}, {0x30, 16, "WRITE_DR"}, {0x40, 32, "EXCP_"},
		{0x90, 16, "WRITE_TRAP_CR"},
	} {
		if reason >= group.first && reason < group.first+group.n {
			return group.name + strconv.Itoa(int(reason-group.first))
		}
	}
	return svmReasons[reason]
}

var svmReasons = map[uint32]string{
	0x60: "INTERRUPT", 0x61: "NMI", 0x62: "SMI", 0x63: "INIT", 0x64: "VINTR", 0x65: "CR0_SEL_WRITE", 0x66: "READ_IDTR",
	0x67: "READ_GDTR", 0x68: "READ_LDTR", 0x69: "READ_TR", 0x6a: "WRITE_IDTR", 0x6b: "WRITE_GDTR", 0x6c: "WRITE_LDTR",
	0x6d: "WRITE_TR", 0x6e: "RDTSC", 0x6f: "RDPMC", 0x70: "PUSHF", 0x71: "POPF", 0x72: "CPUID", 0x73: "RSM", 0x74: "IRET",
	0x75: "SWINT", 0x76: "INVD", 0x77: "PAUSE", 0x78: "HLT", 0x79: "INVLPG", 0x7a: "INVLPGA", 0x7b: "IOIO", 0x7c: "MSR",
	0x7d: "TASK_SWITCH", 0x7e: "FERR_FREEZE", 0x7f: "SHUTDOWN", 0x80: "VMRUN", 0x81: "VMMCALL", 0x82: "VMLOAD",
	0x83: "VMSAVE", 0x84: "STGI", 0x85: "CLGI", 0x86: "SKINIT", 0x87: "RDTSCP", 0x88: "ICEBP", 0x89: "WBINVD",
	0x8a: "MONITOR", 0x8b: "MWAIT", 0x8c: "MWAIT_COND", 0x8d: "XSETBV", 0x8e: "RDPRU", 0x8f: "EFER_WRITE_TRAP",
	0xa2: "INVPCID", 0xa5: "BUS_LOCK", 0xa6: "IDLE_HLT", 0x400: "NPF", 0x401: "AVIC_INCOMPLETE_IPI",
	0x402: "AVIC_UNACCELERATED_ACCESS", 0x403: "VMGEXIT", 0xffffffff: "ERR",
}

// armExceptions are the causes of exits of arm64, except for traps (arch/arm64/include/asm/kvm_asm.h).
var armExceptions = [...]string{"IRQ", "EL1_SERROR", "TRAP", "IL"}

// armClasses are the exception classes of traps (arch/arm64/include/asm/esr.h).
var armClasses = map[uint32]string{
	0x00: "UNKNOWN", 0x01: "WFx", 0x03: "CP15_32", 0x04: "CP15_64", 0x05: "CP14_MR", 0x06: "CP14_LS", 0x07: "FP_ASIMD",
	0x08: "CP10_ID", 0x09: "PAC", 0x0c: "CP14_64", 0x0d: "BTI", 0x0e: "ILL", 0x11: "SVC32", 0x12: "HVC32", 0x13: "SMC32",
	0x15: "SVC64", 0x16: "HVC64", 0x17: "SMC64", 0x18: "SYS64", 0x19: "SVE", 0x1a: "ERET", 0x1c: "FPAC", 0x1d: "SME",
	0x1f: "IMP_DEF", 0x20: "IABT_LOW", 0x21: "IABT_CUR", 0x22: "PC_ALIGN", 0x24: "DABT_LOW", 0x25: "DABT_CUR",
	0x26: "SP_ALIGN", 0x27: "MOPS", 0x28: "FP_EXC32", 0x2c: "FP_EXC64", 0x2f: "SERROR", 0x30: "BREAKPT_LOW",
	0x31: "BREAKPT_CUR", 0x32: "SOFTSTP_LOW", 0x33: "SOFTSTP_CUR", 0x34: "WATCHPT_LOW", 0x35: "WATCHPT_CUR",
	0x38: "BKPT32", 0x3a: "VECTOR32", 0x3c: "BRK64",
}
