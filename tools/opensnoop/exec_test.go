package opensnoop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// openUntil opens the file again and again.
func openUntil(stop <-chan struct{}, path string) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		if f, err := os.Open(path); err == nil {
			f.Close()
		}
	}
}

// TestExec checks that --exec traces the command and its children, nothing else, and that the run ends
// with the command.
func TestExec(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	dir := t.TempDir()
	t.Setenv("OPENED", dir)
	for _, name := range []string{"parent", "child", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const command = `: <"$OPENED/parent"; sh -c ': <"$OPENED/child"'; :`
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		openUntil(stop, filepath.Join(dir, "other"))
	}()
	res := tooltest.JSON(t, Tool, []string{"--exec", command}, nil)
	close(stop)
	<-stopped
	pids, opened := map[float64]bool{}, map[string]int{}
	for _, r := range res.Events {
		if name, ok := strings.CutPrefix(r.Str("path"), dir+"/"); ok {
			opened[name]++
			pids[r.Num("pid")] = true
		}
	}
	if len(opened) != 2 || opened["parent"] != 1 || opened["child"] != 1 || len(pids) != 2 {
		t.Errorf("opened %v by %d processes, want parent and child by one each", opened, len(pids))
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost: %v", lost, res.Summary)
	}
	tooltest.Fails(t, Tool, []string{"--exec", "true", "--pid", "1"}, 2, "task filters")
}
