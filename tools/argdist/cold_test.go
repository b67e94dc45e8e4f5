package argdist

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// A hit whose condition needs memory that is not resident is counted, either as a hit or as an
// unread condition.
func TestColdCondition(t *testing.T) {
	tooltest.Root(t)
	const calls = 20
	name := "/no/such/cold"
	lib := native.Open(t, "libcold.so", []string{"f"})
	texts := tooltest.NewColdTexts(t, name, calls)
	for probe, call := range map[string]func(text uintptr){
		lib.Path + `:f (1) if arg1 == "` + name + `"`: func(text uintptr) {
			lib.Call("f", native.Call{Args: [7]uint64{uint64(text)}})
		},
		`t:syscalls:sys_enter_openat (1) if filename == "` + name + `"`: func(text uintptr) {
			dirfd := unix.AT_FDCWD
			_, _, _ = unix.RawSyscall(unix.SYS_OPENAT, uintptr(dirfd), text, unix.O_RDONLY) // fails: there is no such file
		},
	} {
		args := []string{"-i", "60", "--pid", strconv.Itoa(os.Getpid()), "-C", probe}
		res := tooltest.JSON(t, Tool, args, func() { texts.Each(call) })
		var counted float64
		for _, r := range res.Rows {
			counted += r.Num("count")
		}
		if unread := res.Summary.Object("reasons").Num("condition_unread"); counted+unread != calls {
			t.Errorf("%s: %v hits and %v unread conditions, want %d in total", probe, counted, unread, calls)
		}
	}
}
