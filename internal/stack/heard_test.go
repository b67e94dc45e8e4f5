package stack

import "testing"

// TestHeard names addresses of a process that had ended before it was looked at.
func TestHeard(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	living := newProcesses(t)
	if err := living.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	for _, m := range living.pids[c.pid()].taken.maps {
		if m.isFile() {
			ps.Heard(c.pid(), Mapping{m.start, m.end, m.offset, m.inode, m.path})
		}
	}
	c.stop()
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	expect(t, ps.name(c.pid(), c.addrs[1]), "global_two", 0)
	if f := ps.name(c.pid(), 4096); f.Name != "" || f.Reason != Exited {
		t.Errorf("what lies nowhere is %+v", f)
	}
}

// TestHeardBounds keeps of a process, and of all, no more than there is room for, and of
// what overlaps the newest.
func TestHeardBounds(t *testing.T) {
	ps := newProcesses(t)
	for i := range uint64(2 * maxHeard) {
		ps.Heard(1, Mapping{Start: i * 4096, End: i*4096 + 4096, Inode: i})
	}
	ps.Heard(1, Mapping{Start: 0, End: 1 << 40, Inode: 7})
	if maps := ps.heard.byPID[1]; len(maps) != 1 || maps[0].inode != 7 {
		t.Errorf("%d mappings are left", len(maps))
	}
	for pid := range maxProcesses + 1 {
		ps.Heard(pid+2, Mapping{Start: 0, End: 1})
	}
	if n := len(ps.heard.byPID); n != maxProcesses || ps.heard.byPID[1] != nil {
		t.Errorf("%d processes", n)
	}
}
