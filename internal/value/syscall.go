package value

import (
	"maps"
	"slices"
	"strconv"
)

//go:generate ../../scripts/syscalls.sh

// ABI is how a task calls the kernel, as syscall.bpf.h tells them apart.
type ABI uint32

// The ABIs. A 64-bit kernel has names of its own for each.
const (
	ABINative ABI = iota
	ABICompat     // of 32-bit tasks: i386 or ARM
	ABIX32        // of 64-bit tasks with 32-bit pointers on x86
)

// x32First is the first number that x32 tasks alone have.
const x32First = 512

// Syscalls are the names of this architecture's system calls.
type Syscalls struct{ names [3][]string }

// NewSyscalls returns the names.
func NewSyscalls() *Syscalls {
	native, compat := nativeSyscalls(), compatSyscalls()
	return &Syscalls{[3][]string{withNew(native), withNew(compat), withNew(native)}}
}

// withNew adds calls that are newer than the generated lists. All architectures and
// ABIs have the same numbers from 424 on.
func withNew(names []string) []string {
	names = append(names, make([]string, 471-min(len(names), 471))...)
	names[468], names[469], names[470] = "file_getattr", "file_setattr", "listns"
	return names
}

func x32Syscalls() []string {
	return []string{ // from 512 on
		"rt_sigaction", "rt_sigreturn", "ioctl", "readv", "writev", "recvfrom", "sendmsg", "recvmsg", "execve",
		"ptrace", "rt_sigpending", "rt_sigtimedwait", "rt_sigqueueinfo", "sigaltstack", "timer_create", "mq_notify",
		"kexec_load", "waitid", "set_robust_list", "get_robust_list", "vmsplice", "move_pages", "preadv", "pwritev",
		"rt_tgsigqueueinfo", "recvmmsg", "sendmmsg", "process_vm_readv", "process_vm_writev", "setsockopt", "getsockopt",
		"io_setup", "io_submit", "execveat", "preadv2", "pwritev2",
	}
}

// Name returns the name of a call, or its number as "[471]" where it is not known.
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

// All lists all names, in the alphabet's order.
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

// Number returns the number that a call has in an ABI.
func (s *Syscalls) Number(abi ABI, name string) (uint32, bool) {
	if i := slices.Index(x32Syscalls(), name); abi == ABIX32 && i >= 0 {
		return uint32(x32First + i), true
	}
	i := slices.Index(s.names[abi], name)
	return uint32(i), i >= 0 && name != ""
}
