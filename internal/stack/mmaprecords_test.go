package stack

import (
	"testing"
	"time"
)

// TestMmapRecords symbolizes addresses of a process that exited before its mappings were read.
func TestMmapRecords(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	living := newProcesses(t)
	if err := living.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	for _, m := range living.pids[c.pid()].snapshot.maps {
		if m.isFile() {
			ps.RecordMmap(c.pid(), Mapping{Start: m.start, End: m.end, Offset: m.offset, Inode: m.inode, Path: m.path})
		}
	}
	c.stop()
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	expect(t, ps.name(c.pid(), c.addrs[1]), "global_two", 0)
	if f := ps.name(c.pid(), 4096); f.Name != "" || f.Reason != Exited {
		t.Errorf("address outside mappings: got %+v, want reason exited", f)
	}
}

// TestMmapRecordsBounds checks the limits of mappings per process and of processes, and that a
// mapping replaces those that it overlaps.
func TestMmapRecordsBounds(t *testing.T) {
	ps := newProcesses(t)
	for i := range uint64(2 * maxMmaps) {
		ps.RecordMmap(1, Mapping{Start: i * 4096, End: i*4096 + 4096, Inode: i})
	}
	ps.RecordMmap(1, Mapping{Start: 0, End: 1 << 40, Inode: 7})
	if maps := ps.mmaps.byPID[1]; len(maps) != 1 || maps[0].inode != 7 {
		t.Errorf("%d mappings, want only the last one", len(maps))
	}
	for pid := range maxProcesses + 1 {
		ps.RecordMmap(pid+2, Mapping{Start: 0, End: 1})
	}
	if n := len(ps.mmaps.byPID); n != maxProcesses || ps.mmaps.byPID[1] != nil {
		t.Errorf("%d processes, want %d without the oldest", n, maxProcesses)
	}
}

// TestBackoff looks up an unmapped address repeatedly. If mmap records are received, the mappings
// must be read at increasing intervals, until there is an mmap record of the process.
func TestBackoff(t *testing.T) {
	for _, hasRecords := range []bool{true, false} {
		c, ps := start(t, compile(t, program)), newProcesses(t)
		clock := time.Now()
		ps.now = func() time.Time { return clock }
		if err := ps.Remember(c.pid()); err != nil {
			t.Fatal(err)
		}
		if hasRecords {
			ps.RecordMmap(c.pid()+1, Mapping{})
		}
		reads := func() (n int) {
			for range 100 { // over ten seconds
				clock = clock.Add(refreshEvery)
				before := ps.pids[c.pid()].readAt
				ps.name(c.pid(), 4096)
				if ps.pids[c.pid()].readAt != before {
					n++
				}
			}
			return n
		}
		if n := reads(); hasRecords && n > 12 || !hasRecords && n < 50 {
			t.Errorf("mmap records %v: mappings were read %d times in ten seconds", hasRecords, n)
		}
		ps.RecordMmap(c.pid(), Mapping{})
		before := clock
		clock = clock.Add(maxBackoff / 2)
		if ps.name(c.pid(), 4096); ps.pids[c.pid()].readAt.Before(before) {
			t.Error("mappings were not read again after an mmap record")
		}
	}
}

// TestMmapRecordsExec symbolizes addresses of a program that was started with exec by a known
// process and exited before its mappings were read; and addresses of the program before the exec,
// for which there are no mmap records.
func TestMmapRecordsExec(t *testing.T) {
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
	for _, m := range other.pids[second.pid()].snapshot.maps {
		if m.isFile() {
			ps.RecordMmap(first.pid(), Mapping{Start: m.start, End: m.end, Offset: m.offset, Inode: m.inode, Path: m.path})
		}
	}
	second.stop()
	expect(t, ps.name(first.pid(), second.addrs[0]), "static_one", 0)
	expect(t, ps.name(first.pid(), first.addrs[1]), "global_two", 0)
}

// TestMmapRecordsDuringExec checks that mappings that were read during an exec are soon read again.
func TestMmapRecordsDuringExec(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	clock := time.Now()
	ps.now = func() time.Time { return clock }
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	all := ps.pids[c.pid()].snapshot.maps
	ps.pids[c.pid()].snapshot.maps = nil
	defer func() {
		for i := range all {
			if all[i].module != nil {
				ps.cache.release(all[i].module)
			}
		}
	}()
	if f := ps.name(c.pid(), c.addrs[0]); f.Reason != Unmapped {
		t.Errorf("mappings were read again without an mmap record: %+v", f)
	}
	ps.RecordMmap(c.pid(), Mapping{})
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
}
