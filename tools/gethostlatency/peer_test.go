package gethostlatency

import (
	"fmt"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer compares with gethostlatency of libbpf-tools: each line of the peer must be one of ours,
// with the same process and name.
func TestPeer(t *testing.T) {
	peer := tooltest.StartPeer(t, "gethostlatency")
	lookup := func(host string) {
		_ = tooltest.PeerCommand(t, "getent", "ahosts", host).Run()
	}
	peer.Await(t, "127.1.1.1", func() { lookup("127.1.1.1") })
	text := tooltest.Text(t, Tool, nil, func() {
		for i := range 10 {
			lookup(fmt.Sprintf("127.2.2.%d", i))
		}
		lookup("no such name")
		lookup("127.3.3.3")
		peer.Await(t, "127.3.3.3", nil)
	})
	var lines int
	for _, line := range peer.Stop(t) {
		f := strings.Fields(line)
		if !strings.Contains(line, "127.2.2.") && !strings.Contains(line, "no such name") {
			continue
		}
		lines++
		if !hasLine(text, f[1], f[2], strings.Join(f[4:], " ")) {
			t.Errorf("line of the peer is missing: %q", line)
		}
	}
	if lines == 0 {
		t.Error("the peer printed no line")
	}
	t.Logf("of 11 lookups the peer printed %d", lines)
}

// hasLine reports whether there is a line of the process with the name.
func hasLine(text, pid, comm, host string) bool {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 4 && f[1] == pid && f[2] == comm && strings.Join(f[4:], " ") == host {
			return true
		}
	}
	return false
}
