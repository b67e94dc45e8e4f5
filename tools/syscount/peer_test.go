package syscount

import (
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer compares with syscount of libbpf-tools.
func TestPeer(t *testing.T) {
	const n = 4321
	peer := tooltest.StartPeer(t, "syscount", "-p", self())
	peer.Await(t, "Tracing syscalls", nil)
	res := tooltest.JSON(t, Tool, []string{"-p", self()}, func() { call(1, n) })
	theirs := ""
	for _, line := range peer.Stop(t) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "getppid" {
			theirs = f[1]
		}
	}
	if ours := sum(res.Rows, "getppid", "count"); ours != n || theirs != "4321" {
		t.Errorf("have %v calls, the peer %s, want %d", ours, theirs, n)
	}
}
