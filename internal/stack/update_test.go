package stack

import (
	"fmt"
	"testing"
	"time"
)

// TestUpdate checks functions that the perf map has since it was last read, while the process runs
// and after it has exited.
func TestUpdate(t *testing.T) {
	c, ps := start(t, compile(t, jit)), newProcesses(t)
	clock := time.Now()
	ps.now = func() time.Time { return clock } // so that the mappings are not read again by themselves
	page, text := c.addrs[0], ""
	at := func(addr uint64) Frame { return ps.AppendAt(nil, c.pid(), []uint64{addr}, monotonic())[0] }
	for i, name := range []string{"first", "second", "last"} {
		start := page + uint64(0x20*i)
		text += fmt.Sprintf("%x 20 %s\n", start, name)
		writePerfMap(t, "/tmp", c.addrs[1], text)
		if i > 0 {
			if f := at(start + 1); f.Name != "" || !f.Late {
				t.Errorf("%s: before Update: %#v", name, f)
			}
		}
		if name == "last" {
			c.stop()
		}
		ps.Update(c.pid(), monotonic())
		if f := at(start + 1); f.Name != name || f.Late {
			t.Errorf("%s: after Update: %#v", name, f)
		}
	}
	if f := at(page + 0x100); f.Name != "" || !f.Late {
		t.Errorf("no function: %#v", f)
	}
}
