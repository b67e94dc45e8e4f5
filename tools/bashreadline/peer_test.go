package bashreadline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer compares with bashreadline of libbpf-tools.
func TestPeer(t *testing.T) {
	peer := tooltest.StartPeer(t, "bashreadline")
	bash := startBash(t, tooltest.PeerCommand(t, "bash", "--norc", "--noprofile", "-i"))
	peer.Await(t, "true ready", func() { bash.enter("true ready", "first$ ") })
	text := tooltest.Text(t, Tool, nil, func() {
		bash.enter("true", "first$ ") // read by the call that was active before the tool was attached
		for i := range 10 {
			bash.enter(fmt.Sprintf("true number  %d", i), "first$ ")
		}
		bash.enter("true last", "first$ ")
		peer.Await(t, "true last", nil)
	})
	var lines int
	for _, line := range peer.Stop(t) {
		if !strings.Contains(line, "true number") {
			continue
		}
		lines++
		pid, command := strings.Fields(line)[1], line[strings.Index(line, "true"):]
		if !strings.Contains(text, " "+pid+" ") || !strings.Contains(text, " "+command+"\n") {
			t.Errorf("line of the peer is missing: %q", line)
		}
	}
	if lines == 0 {
		t.Error("the peer printed no line")
	}
	t.Logf("of 10 lines the peer printed %d", lines)
}
