package value

import (
	"maps"
	"slices"
	"strconv"
)

//go:generate ../../scripts/syscalls.sh

// ABI is a system call ABI, numbered as in syscall.bpf.h.
type ABI uint32

// The ABIs of a 64-bit kernel. Each has its own system call numbers.
const (
	ABINative ABI = iota
	ABICompat     // 32-bit tasks: i386 or ARM
	ABIX32        // x86 tasks with 32-bit pointers in 64-bit mode
)

// x32First is the first system call number specific to x32.
const x32First = 512

// Syscalls holds the names of the system calls of this architecture.
type Syscalls struct{ names [3][]string }

// NewSyscalls returns the names.
func NewSyscalls() *Syscalls {
	native, compat := nativeSyscalls(), compatSyscalls()
	return &Syscalls{[3][]string{withNew(native), withNew(compat), withNew(native)}}
}

// withNew adds system calls that are newer than the generated lists. From 424 on, the
// numbers are the same on all architectures and ABIs.
func withNew(names []string) []string {
	names = append(names, make([]string, 471-min(len(names), 471))...)
	names[468], names[469], names[470] = "file_getattr", "file_setattr", "listns"
	return names
}

func x32Syscalls() []string {
	return []string{ // starting at x32First
		"rt_sigaction", "rt_sigreturn", "ioctl", "readv", "writev", "recvfrom", "sendmsg", "recvmsg", "execve",
		"ptrace", "rt_sigpending", "rt_sigtimedwait", "rt_sigqueueinfo", "sigaltstack", "timer_create", "mq_notify",
		"kexec_load", "waitid", "set_robust_list", "get_robust_list", "vmsplice", "move_pages", "preadv", "pwritev",
		"rt_tgsigqueueinfo", "recvmmsg", "sendmmsg", "process_vm_readv", "process_vm_writev", "setsockopt", "getsockopt",
		"io_setup", "io_submit", "execveat", "preadv2", "pwritev2",
	}
}

// Name returns the name of a system call, or its number as "[471]" if it is unknown.
func (s *Syscalls) Name(abi ABI, nr uint32) string {
	names := s.names[ABINative]
	if int(abi) < len(s.names) {
		names = s.names[abi]
	}
	if x32 := x32Syscalls(); abi == ABIX32 && nr >= x32First && int(nr-x32First) < len(x32) {
		return x32[nr-x32First]
	}
	if int(nr) < len(names) && names[nr] != "" {
		return names[nr]
	}
	return "[" + strconv.FormatUint(uint64(nr), 10) + "]"
}

// All returns all names in alphabetical order.
func (s *Syscalls) All() []string {
	seen := map[string]bool{}
	for _, names := range s.names {
		for _, name := range names {
			seen[name] = true
		}
	}
	delete(seen, "")
	return slices.Sorted(maps.Keys(seen))
}

// Number returns the number of a system call in an ABI.
func (s *Syscalls) Number(abi ABI, name string) (uint32, bool) {
	if i := slices.Index(x32Syscalls(), name); abi == ABIX32 && i >= 0 {
		return uint32(x32First + i), true
	}
	i := slices.Index(s.names[abi], name)
	return uint32(i), i >= 0 && name != ""
}

// kindNumbers is the number of elements of targ_calls in callset.bpf.h.
const kindNumbers = 1024

// CallKinds returns the variable targ_calls of callset.bpf.h: by number, one byte per ABI with the
// kind of the call. An ABI need not have all calls.
func CallKinds[K ~uint8 | ~uint32](s *Syscalls, kinds map[string]K) []uint32 {
	out := make([]uint32, kindNumbers)
	for name, kind := range kinds {
		for abi := range s.names {
			if nr, ok := s.Number(ABI(abi), name); ok {
				out[nr] |= uint32(kind) << (8 * abi)
			}
		}
	}
	return out
}
