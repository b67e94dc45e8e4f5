package trace

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// coldName is a text that is passed in memory that is not resident.
const coldName = "/no/such/cold"

// A condition on memory that is not resident is evaluated after waiting for the page, or the hit is
// counted as lost.
func TestColdCondition(t *testing.T) {
	tooltest.Root(t)
	lib := native.Open(t, "libcold.so", []string{"f"})
	waits := tooltest.HasSleepableUprobes(t)
	checkCold(t, lib.Path+`:f (arg1:str) if STRCMP("%s", arg1)`, waits, func(text uintptr) {
		lib.Call("f", native.Call{Args: [7]uint64{uint64(text)}})
	})
	checkCold(t, lib.Path+`:f (arg1:str) if arg2 == 7 && STRCMP("%s", arg1)`, waits, func(text uintptr) {
		lib.Call("f", native.Call{Args: [7]uint64{uint64(text), 7}})
		lib.Call("f", native.Call{Args: [7]uint64{uint64(text), 8}})
	})
}

// The condition of a tracepoint cannot wait for a page.
func TestColdTracepointCondition(t *testing.T) {
	tooltest.SystemCallTracepoints(t)
	checkCold(t, `t:syscalls:sys_enter_openat (filename:str) if STRCMP("%s", filename)`, false, func(text uintptr) {
		dirfd := unix.AT_FDCWD
		_, _, _ = unix.RawSyscall(unix.SYS_OPENAT, uintptr(dirfd), text, unix.O_RDONLY) // fails: there is no such file
	})
}

// checkCold checks that each call is a row, or counted as lost. waits is true if the program waits
// for the page, so that none is lost.
func checkCold(t *testing.T, format string, waits bool, call func(text uintptr)) {
	t.Helper()
	const calls = 20
	probe := fmt.Sprintf(format, coldName)
	texts := tooltest.NewColdTexts(t, coldName, calls)
	args := []string{"-S", "--pid", strconv.Itoa(os.Getpid()), probe}
	res := tooltest.JSON(t, Tool, args, func() { texts.Each(call) })
	unread := int(res.Summary.Object("reasons").Num("condition_unread"))
	if len(res.Events)+unread != calls || waits && unread != 0 {
		t.Errorf("%s: %d rows and %d unread conditions, want %d in total (waits: %v)",
			probe, len(res.Events), unread, calls, waits)
	}
	for _, r := range res.Events {
		if text, _ := r["args"].(map[string]any); text["arg1"] != coldName && text["filename"] != coldName {
			t.Errorf("%s: args %v, want %q", probe, r["args"], coldName)
		}
	}
}

// A value that could not be read may contain the text of --msg-filter, so its row is shown.
func TestColdMsgFilter(t *testing.T) {
	tooltest.SystemCallTracepoints(t)
	const calls = 5
	texts := tooltest.NewColdTexts(t, coldName, calls)
	probe := "t:syscalls:sys_enter_openat(filename) if flags == " + strconv.Itoa(unix.O_NOFOLLOW)
	args := []string{"--pid", strconv.Itoa(os.Getpid()), "-S", "-f", coldName, probe}
	res := tooltest.JSON(t, Tool, args, func() {
		texts.Each(func(text uintptr) {
			dirfd := unix.AT_FDCWD
			_, _, _ = unix.RawSyscall(unix.SYS_OPENAT, uintptr(dirfd), text, unix.O_NOFOLLOW) // fails: there is no such file
		})
	})
	if len(res.Events) != calls {
		t.Errorf("%d rows, want %d", len(res.Events), calls)
	}
}
