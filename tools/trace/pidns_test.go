package trace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// trace omits its own events in a child PID namespace too, where its PID differs from the one in
// the initial namespace.
func TestPIDNamespace(t *testing.T) {
	if !tooltest.InNamespaces(t, unix.CLONE_NEWPID) {
		return
	}
	lib := native.Open(t, "libown.so", []string{"own"})
	probe := lib.Path + ":own"
	for _, args := range [][]string{{probe}, {"-S", probe}} {
		res := tooltest.JSON(t, Tool, args, func() { lib.Call("own", native.Call{}) })
		if want := len(args) - 1; len(res.Events) != want {
			t.Errorf("%q: %d rows, want %d", args, len(res.Events), want)
		}
	}
}
