package syscount

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// In a child PID namespace --pid and --ppid have its IDs.
func TestPIDNamespace(t *testing.T) {
	if !tooltest.InNamespaces(t, unix.CLONE_NEWPID) {
		return
	}
	const n = 1000
	count := func(args []string, call string, load func()) (n float64) {
		for _, r := range tooltest.JSON(t, Tool, args, load).Rows {
			if r.Str("syscall") == call {
				n += r.Num("count")
			}
		}
		return n
	}
	self := strconv.Itoa(os.Getpid())
	if got := count([]string{"--pid", self}, "getppid", func() {
		for range n {
			unix.Getppid()
		}
	}); got != n {
		t.Errorf("%v calls of getppid, want %d", got, n)
	}
	if got := count([]string{"--ppid", self}, "execve", func() {
		if err := exec.Command("true").Run(); err != nil {
			t.Error(err)
		}
	}); got != 1 {
		t.Errorf("%v calls of execve by a child, want 1", got)
	}
}
