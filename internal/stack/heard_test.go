package stack

import (
	"testing"
	"time"
)

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

// TestRest asks for an address that lies nowhere, again and again: the mappings are read at
// ever longer intervals until something is heard of the process, if anything is heard at all.
func TestRest(t *testing.T) {
	for _, hears := range []bool{true, false} {
		c, ps := start(t, compile(t, program)), newProcesses(t)
		clock := time.Now()
		ps.now = func() time.Time { return clock }
		if err := ps.Remember(c.pid()); err != nil {
			t.Fatal(err)
		}
		if hears {
			ps.Heard(c.pid()+1, Mapping{})
		}
		reads := func() (n int) {
			for range 100 { // over ten seconds
				clock = clock.Add(refreshEvery)
				before := ps.pids[c.pid()].read
				ps.name(c.pid(), 4096)
				if ps.pids[c.pid()].read != before {
					n++
				}
			}
			return n
		}
		if n := reads(); hears && n > 12 || !hears && n < 50 {
			t.Errorf("hears %v: read %d times in ten seconds", hears, n)
		}
		ps.Heard(c.pid(), Mapping{})
		before := clock
		clock = clock.Add(mostRest / 2)
		if ps.name(c.pid(), 4096); ps.pids[c.pid()].read.Before(before) {
			t.Error("not read again after something was heard")
		}
	}
}

// TestHeardOfSuccessor names addresses of a program that a process went on with by an exec, and
// that had ended before it was looked at; and those of the program before, of which nothing was heard.
func TestHeardOfSuccessor(t *testing.T) {
	first, second := start(t, compile(t, program)), start(t, compile(t, program+"int one_more;"))
	other, ps := newProcesses(t), newProcesses(t)
	for _, remember := range []func() error{
		func() error { return ps.Remember(first.pid()) }, func() error { return other.Remember(second.pid()) },
	} {
		if err := remember(); err != nil {
			t.Fatal(err)
		}
	}
	first.stop()
	expect(t, ps.name(first.pid(), first.addrs[0]), "static_one", 0)
	for _, m := range other.pids[second.pid()].taken.maps {
		if m.isFile() {
			ps.Heard(first.pid(), Mapping{m.start, m.end, m.offset, m.inode, m.path})
		}
	}
	second.stop()
	expect(t, ps.name(first.pid(), second.addrs[0]), "static_one", 0)
	expect(t, ps.name(first.pid(), first.addrs[1]), "global_two", 0)
}

// TestHeardAmidExec has the mappings read again at once where they were read in the midst of an exec.
func TestHeardAmidExec(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	clock := time.Now()
	ps.now = func() time.Time { return clock }
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	all := ps.pids[c.pid()].taken.maps
	ps.pids[c.pid()].taken.maps = nil
	defer func() {
		for i := range all {
			if all[i].module != nil {
				ps.cache.release(all[i].module)
			}
		}
	}()
	if f := ps.name(c.pid(), c.addrs[0]); f.Reason != Unmapped {
		t.Errorf("mappings were read again although nothing was heard: %+v", f)
	}
	ps.Heard(c.pid(), Mapping{})
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
}
