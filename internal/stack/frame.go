// Package stack symbolizes the addresses of stack traces.
//
// Kernel symbolizes kernel addresses with /proc/kallsyms, Processes symbolizes user addresses with
// the files that a process maps. Failure is not an error: the Frame of an address without a symbol
// has its module and offset, and the Reason. The package does not depend on eBPF. A trace is a list
// of addresses, innermost first, that ends at the first zero address or at the end of the list.
//
// All addresses but the first are return addresses, which follow the call instruction. The symbol
// is looked up for the byte before, as the kernel does for %pB. Otherwise a call that is the last
// instruction of its function (for example of abort) would be attributed to the next function.
package stack

// Frame is one frame of a stack trace.
type Frame struct {
	// Addr is the sampled address.
	Addr uint64
	// Name is the demangled name of the function, or empty if Reason is not Named.
	Name string
	// Module is the path of the mapped file as in /proc/PID/maps, without escapes, or a name in brackets for memory
	// without a file: [kernel], [ext4] (a kernel module), [bpf], [vdso], [anon]. It is empty if no
	// known mapping contains the address.
	Module string
	// Offset is relative to the start of the function, if Name is set. Otherwise it is the address
	// within Module: the ELF virtual address, as addr2line takes it, for an ELF file; the file
	// offset for another file; the offset in the mapping for memory without a file; and Addr for
	// the kernel.
	Offset uint64
	// BuildID is the GNU build-id of Module in hexadecimal, or empty if it has none or cannot be
	// read.
	BuildID string
	// File and Line are the source position, or empty and 0 if unknown.
	File string
	Line int
	// Inlined is set for an inlined function. The frame that follows is the function it is inlined
	// in.
	Inlined bool
	// Kernel is set for kernel addresses.
	Kernel bool
	// Reason is why Name is empty, or Named if Name is set.
	Reason Reason
	// Late is set if a JIT compiler can have named the address since its perf map or jitdump was
	// read: see [Processes.Update].
	Late bool
}

// Reason is why a frame has no name.
type Reason uint8

const (
	// Named: the frame has a name.
	Named Reason = iota
	// NoSymbols: no symbol of the module covers the address.
	NoSymbols
	// Exited: the process exited before its mappings were read.
	Exited
	// Unreadable: the mappings or the module cannot be opened or parsed.
	Unreadable
	// Unmapped: no executable mapping contains the address. This is common for addresses that were
	// found by following frame pointers through code without frame pointers.
	Unmapped
	// Restricted: the kernel hides its addresses (ErrRestricted).
	Restricted
	// Outside: the process is not in the PID namespace of /proc, so its files are not accessible.
	Outside
	// Replaced: the process mapped another file at the address.
	Replaced
)

var reasons = [...]string{
	"", "no symbols", "exited", "unreadable", "unmapped", "restricted", "in another PID namespace", "file replaced",
}

// String returns the reason as text, "" for Named.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "unknown"
}

// MarshalText returns the same text as String.
func (r Reason) MarshalText() ([]byte, error) {
	return []byte(r.String()), nil
}
