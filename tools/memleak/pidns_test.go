package memleak

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// Allocations younger than --older count only if the process has exited. In a child PID namespace
// the tool must look for it by its PID there, not by the one in the initial namespace.
func TestPIDNamespace(t *testing.T) {
	if !tooltest.InNamespaces(t, unix.CLONE_NEWPID) {
		return
	}
	lib := library(t, "libc.so.6", "")
	for older, want := range map[string]int{"0": 1, "3600000": 0} {
		res := tooltest.JSON(t, Tool, only(lib, "--older", older), func() { leak(lib, 1<<20, 10, 10) })
		if len(res.Rows) != want {
			t.Errorf("older than %s ms: %d rows, want %d: %v", older, len(res.Rows), want, res.Rows)
		}
	}
}
