package stack

import (
	"strings"
	"testing"
)

func TestParseMaps(t *testing.T) {
	text := `00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus daemon
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/dbus daemon
7f00-8000 rwxp 00000000 00:00 0
f000-ffff r-xs 00000000 00:01 22                           /memfd:a\012b (deleted)
7fff0000-7fff2000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
10-zz r-xp 00000000 00:00 0
20-10 r-xp 00000000 00:00 0
30-40 r-xp
nonsense

`
	want := []mapping{
		{start: 0x400000, end: 0x452000, offset: 0x1000, inode: 173521, path: "/usr/bin/dbus daemon"},
		{start: 0x7f00, end: 0x8000, path: "[anon]"},
		{start: 0xf000, end: 0xffff, inode: 22, path: "/memfd:a\nb (deleted)"},
		{start: 0x7fff0000, end: 0x7fff2000, path: "[vdso]"},
		{start: 0xffffffffff600000, end: 0xffffffffff601000, path: "[vsyscall]"},
	}
	got, _, err := parseMaps(strings.NewReader(text), "a")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("got %d mappings, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}

func TestSnapshotMapping(t *testing.T) {
	s := &snapshot{maps: []mapping{{start: 10, end: 20}, {start: 20, end: 30}, {start: 50, end: 60}}}
	for addr, want := range map[uint64]uint64{9: 0, 10: 10, 19: 10, 20: 20, 30: 0, 49: 0, 50: 50, 59: 50, 60: 0} {
		m := s.mapping(addr)
		if got := m; want == 0 && got != nil || want != 0 && (got == nil || got.start != want) {
			t.Errorf("%d: got %+v", addr, got)
		}
	}
}

func TestOverlaps(t *testing.T) {
	maps := []mapping{{start: 10, end: 20}, {start: 40, end: 50}}
	tests := []struct {
		start, end uint64
		want       bool
	}{
		{0, 10, false}, {0, 11, true}, {12, 13, true}, {19, 30, true}, {20, 40, false},
		{20, 41, true}, {5, 60, true}, {50, 60, false},
	}
	for _, test := range tests {
		if got := overlaps(maps, mapping{start: test.start, end: test.end}); got != test.want {
			t.Errorf("%d-%d: got %t", test.start, test.end, got)
		}
	}
}
