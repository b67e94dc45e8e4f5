package execsnoop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer compares with execsnoop of libbpf-tools, for successful and failed calls and scripts:
// each line of the peer must be one of ours.
func TestPeer(t *testing.T) {
	dir, target := t.TempDir(), program(t, "true")
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	peer := tooltest.StartPeer(t, "execsnoop", "-x")
	n := 0
	peer.Await(t, dir+"/ready", func() {
		n++
		run(t, exec.Command(target, fmt.Sprintf("%s/ready%d", dir, n)))
	})
	const rounds = 100
	text := tooltest.Text(t, Tool, []string{"-x"}, func() {
		for i := range rounds {
			arg := fmt.Sprintf("%s/arg%d", dir, i)
			run(t, exec.Command(target, arg, "x y", "", "end"))
			run(t, exec.Command(script, arg))
			(&exec.Cmd{Path: dir + "/missing", Args: []string{"x", arg}}).Run()
		}
		run(t, exec.Command(target, dir+"/last"))
		peer.Await(t, dir+"/last", nil)
	})
	ours := squeeze(text)
	var lines int
	for _, line := range peer.Stop(t) {
		if !strings.Contains(line, dir+"/arg") {
			continue
		}
		lines++
		if !strings.Contains(ours, "\n"+strings.Join(strings.Fields(line), " ")+"\n") {
			t.Errorf("line of the peer is missing: %q", line)
		}
	}
	const all = rounds * 3
	t.Logf("of %d execs the peer printed %d", all, lines)
	if got := strings.Count(text, dir+"/arg"); got != all {
		t.Errorf("have %d of %d execs", got, all)
	}
	if lines == 0 {
		t.Error("the peer printed no line")
	}
}

func squeeze(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}
