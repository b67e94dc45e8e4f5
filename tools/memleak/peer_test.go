package memleak

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestPeer traces a shell at the same time as memleak of libbpf-tools, and compares when the shell
// waits for its next line: each allocation of the peer must be one of ours.
func TestPeer(t *testing.T) {
	tooltest.Root(t)
	sh := tooltest.PeerCommand(t, "bash", "--norc")
	in, err := sh.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); sh.Wait() })
	say := func(line string) string {
		fmt.Fprintln(in, line)
		b := make([]byte, 64)
		n, err := out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.TrimSpace(b[:n]))
	}
	pid := say("echo $BASHPID")
	peer := tooltest.StartPeer(t, "memleak", "-p", pid, "-a", "-o", "1", "-T", "100000", "1")
	peer.Await(t, "outstanding", nil)
	res := tooltest.JSON(t, Tool, []string{"--pid", pid, "-a", "-o", "0"}, func() {
		say("for i in {1..300}; do a[$i]=$(printf %$((i * 17))s x 2>/dev/null); done; b=$(printf %77777s x); echo done")
		peer.Await(t, "size = 77778", nil)
	})
	ours := map[string]bool{}
	for _, r := range res.Rows {
		ours[fmt.Sprintf("%s %.0f", r.Str("address"), r.Num("bytes"))] = true
	}
	theirs := last(peer.Stop(t))
	t.Logf("the peer has %d allocations, we have %d", len(theirs), len(ours))
	compare(t, theirs, ours)
}

// last returns the allocations in the last report of the peer, as address and size.
func last(lines []string) (all []string) {
	for _, line := range lines {
		if strings.Contains(line, "outstanding") {
			all = nil
		}
		if f := strings.Fields(line); len(f) == 6 && f[0] == "addr" {
			all = append(all, f[2]+" "+f[5])
		}
	}
	return all
}

func compare(t *testing.T, peers []string, ours map[string]bool) {
	t.Helper()
	lacking := 0
	for _, a := range peers {
		if !ours[a] {
			lacking++
		}
	}
	if len(peers) == 0 || lacking > 0 {
		t.Errorf("of %d allocations of the peer, %d are missing in our %d", len(peers), lacking, len(ours))
	}
}
