package value

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSyscallNames(t *testing.T) {
	s := NewSyscalls()
	for nr, want := range map[uint32]string{
		unix.SYS_READ: "read", unix.SYS_GETPPID: "getppid", unix.SYS_OPENAT2: "openat2", unix.SYS_CLONE3: "clone3",
		unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_MSEAL: "mseal", 470: "listns", 999: "[999]", 1 << 31: "[2147483648]",
	} {
		if got := s.Name(ABINative, nr); got != want {
			t.Errorf("native system call %d: %s, want %s", nr, got, want)
		}
	}
	for nr, want := range map[uint32]string{3: "read", 64: "getppid", 11: "execve", 120: "clone", 437: "openat2", 469: "file_setattr"} {
		if got := s.Name(ABICompat, nr); got != want {
			t.Errorf("32-bit system call %d: %s, want %s", nr, got, want)
		}
	}
	for nr, want := range map[uint32]string{512: "rt_sigaction", 520: "execve", 545: "execveat", 547: "pwritev2", 548: "[548]"} {
		if got := s.Name(ABIX32, nr); got != want {
			t.Errorf("x32 system call %d: %s, want %s", nr, got, want)
		}
	}
	if got := s.Name(7, unix.SYS_READ); got != "read" {
		t.Errorf("system call %d of an unknown ABI: %s, want read", unix.SYS_READ, got)
	}
}

func TestSyscallNumbers(t *testing.T) {
	s := NewSyscalls()
	for _, abi := range []ABI{ABINative, ABICompat, ABIX32} {
		for _, name := range s.All() {
			nr, ok := s.Number(abi, name)
			if ok && s.Name(abi, nr) != name {
				t.Errorf("ABI %d: %s has number %d, which is %s", abi, name, nr, s.Name(abi, nr))
			}
		}
	}
	if nr, ok := s.Number(ABINative, "getppid"); !ok || nr != unix.SYS_GETPPID {
		t.Errorf("Number of getppid = %d, %v, want %d", nr, ok, unix.SYS_GETPPID)
	}
	for _, name := range []string{"", "none", "[999]"} {
		if nr, ok := s.Number(ABINative, name); ok {
			t.Errorf("Number of %q = %d, want none", name, nr)
		}
	}
	if all := s.All(); !slices.IsSorted(all) || len(all) < 300 || all[0] == "" {
		t.Errorf("names %q, want at least 300, sorted", all)
	}
}
