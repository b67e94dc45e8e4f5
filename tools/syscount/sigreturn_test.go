package syscount

import (
	"os"
	"os/signal"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestSignalHandlers checks that the return from a signal handler has no row: not rt_sigreturn, nor a
// number without a name. The calls that send the signals have one.
func TestSignalHandlers(t *testing.T) {
	const signals = 50
	received := make(chan os.Signal, 1)
	signal.Notify(received, unix.SIGUSR1)
	defer signal.Stop(received)
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		for range signals {
			if err := unix.Kill(os.Getpid(), unix.SIGUSR1); err != nil {
				t.Error(err)
			}
			<-received // the handler has run
		}
	})
	sent := 0.0
	for _, r := range res.Rows {
		switch name := r.Str("syscall"); {
		case name == "kill":
			sent += r.Num("count")
		case name == "rt_sigreturn" || name[0] == '[':
			t.Errorf("a call that does not return has a row: %v", r)
		}
	}
	if sent != signals {
		t.Errorf("%.0f calls of kill, want %d", sent, signals)
	}
}
