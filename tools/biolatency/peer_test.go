package biolatency

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer compares counts and titles per disk and set of flags with biolatency of libbpf-tools.
func TestPeer(t *testing.T) {
	l := newLoop(t, 0)
	peer := tooltest.StartPeer(t, "biolatency", "-D", "-F")
	peer.Await(t, "Hit Ctrl-C", nil)
	text := tooltest.Text(t, Tool, []string{"-D", "-F"}, func() {
		writeBlocks(t, l.dev, 300)
		readBlocks(t, l.dev, 200)
		for i := range 20 {
			l.discard(t, uint64(i)*stride, blockSize)
			if err := unix.Fsync(int(l.dev.Fd())); err != nil {
				t.Error(err)
			}
		}
	})
	theirs := counts(peer.Stop(t), l.name)
	ours := counts(strings.Split(text, "\n"), l.name)
	want := map[string]int{"Idle-Sync-Write": 300, "Sync-Read": 200, "Sync-Discard": 20, "PreFlush-Flush": 20}
	if !maps.Equal(ours, want) {
		t.Errorf("we counted %v, want %v", ours, want)
	}
	if !maps.Equal(theirs, want) {
		t.Errorf("the peer counted %v, want %v", theirs, want)
	}
}

// counts sums the bars of a disk's histograms by flags.
func counts(lines []string, disk string) map[string]int {
	sums := map[string]int{}
	flags := ""
	for _, line := range lines {
		if title, ok := strings.CutPrefix(line, "disk = "); ok {
			name, rest, _ := strings.Cut(title, "\t")
			flags = ""
			if name == disk {
				flags = strings.TrimPrefix(rest, "flags = ")
			}
		}
		bounds, bar, ok := strings.Cut(line, " : ")
		if ok && flags != "" && strings.Contains(bounds, "->") {
			n, _ := strconv.Atoi(strings.Fields(bar)[0])
			sums[flags] += n
		}
	}
	return sums
}
