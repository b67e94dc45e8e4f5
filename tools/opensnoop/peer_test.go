package opensnoop

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer compares with opensnoop of libbpf-tools: each line of the peer must be one of our rows,
// with the same text except for documented differences.
func TestPeer(t *testing.T) {
	dir := t.TempDir()
	peer := tooltest.StartPeer(t, "opensnoop", self()...)
	n := 0
	peer.Await(t, dir+"/ready", func() {
		n++
		closing(unix.Open(fmt.Sprintf("%s/ready%d", dir, n), unix.O_RDONLY, 0))
	})
	text := tooltest.Text(t, Tool, self(), func() {
		for i := range 100 {
			path := fmt.Sprintf("%s/file%d", dir, i)
			closing(unix.Open(path, unix.O_RDONLY, 0))
			closing(unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600))
			closing(unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH}))
		}
		os.ReadFile(dir + "/last")
		peer.Await(t, dir+"/last", nil)
	})
	var lines int
	for _, line := range peer.Stop(t) {
		if !strings.Contains(line, dir+"/file") {
			continue
		}
		lines++
		if fields := strings.Fields(line); !strings.Contains(squeeze(text), strings.Join(fields, " ")+"\n") {
			t.Errorf("line of the peer is missing: %q", line)
		}
	}
	if lines == 0 {
		t.Error("the peer printed no line")
	}
	t.Logf("of 300 opens the peer printed %d", lines)
	if ours := strings.Count(text, dir+"/file"); ours != 300 {
		t.Errorf("have %d of 300 opens", ours)
	}
}

func squeeze(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}
