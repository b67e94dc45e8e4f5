// Package stack turns the addresses of a stack trace into names.
//
// Kernel names kernel addresses from /proc/kallsyms, Processes names user
// addresses from the files a process maps. An address that cannot be named is
// data: its Frame says where it lies and why it has no name. The package knows
// nothing of eBPF: addresses come in as the kernel stored them, innermost
// first, and a zero address ends a trace as it does in a BPF stack-trace map.
//
// All addresses but the first are return addresses, which point behind the
// call; they are looked up one byte earlier, as the kernel does for %pB.
// Otherwise a call that ends its function (to abort, say) would be named after
// the function that happens to follow.
package stack

// Frame is one function of a stack trace.
type Frame struct {
	// Addr is the address as it was sampled.
	Addr uint64
	// Name is the demangled function, or empty: see Reason.
	Name string
	// Module is the mapped file as /proc/PID/maps writes it, or a name in
	// brackets for what is no file: [kernel], [ext4], [bpf], [vdso], [anon].
	// It is empty when no mapping is known to hold the address.
	Module string
	// Offset is counted from the start of the function Name. Without a Name
	// it is the address within Module: the ELF virtual address that addr2line
	// takes, the file offset if Module is no ELF file, the distance from the
	// start of the mapping if it is no file, and Addr itself in the kernel.
	Offset uint64
	// BuildID is the GNU build-id of Module in hexadecimal, empty if it has
	// none or could not be read.
	BuildID string
	// File and Line are the source position, empty and 0 if unknown.
	File string
	Line int
	// Inlined is set for a function whose code lies within the next frame's.
	Inlined bool
	// Kernel is set for kernel addresses.
	Kernel bool
	// Reason says why Name is empty; it is Named when it is not.
	Reason Reason
}

// Reason says why a frame has no name.
type Reason uint8

const (
	// Named: the frame has a name.
	Named Reason = iota
	// NoSymbols: no symbol table of the module covers the address.
	NoSymbols
	// Exited: the process was gone before the mapping could be read.
	Exited
	// Unreadable: the mappings or the module could not be opened or parsed.
	Unreadable
	// Unmapped: no executable mapping holds the address. Chains of frame
	// pointers that lead through code without them end in such addresses.
	Unmapped
	// Restricted: the kernel hides its addresses, see ErrRestricted.
	Restricted
	// Outside: the process is not in the PID namespace of /proc, which has no files of it.
	Outside
)

var reasons = [...]string{
	"", "no symbols", "exited", "unreadable", "unmapped", "restricted", "in another PID namespace",
}

// String returns the reason in words, "" for Named.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "unknown"
}

// MarshalText writes the reason as String does.
func (r Reason) MarshalText() ([]byte, error) {
	return []byte(r.String()), nil
}
