package gethostlatency

import (
	"fmt"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestUnseenCalls starts the tool while lookups of two processes are in progress. Only that of the
// selected process is counted, and no call whose entry was observed.
func TestUnseenCalls(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.CompileUnseen(t, "gethostbyname2", "gethostbyname")
	pid, finish := tooltest.StartUnseen(t, path)
	_, finishOther := tooltest.StartUnseen(t, path)
	args := []string{"--pid", fmt.Sprint(pid)}
	res := tooltest.JSON(t, Tool, args, func() { finish(); finishOther() })
	counters := res.Summary.Object("counters")
	if counters.Num("unseen_calls") != 1 || counters.Num("no_return") != 0 || res.Summary.Num("lost") != tooltest.UnseenNested {
		t.Errorf("summary %v, want unseen_calls 1, no_return 0 and %d lost", res.Summary, tooltest.UnseenNested)
	}
}
