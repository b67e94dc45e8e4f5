package stack

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzSymbols reads malformed files.
func FuzzSymbols(f *testing.F) {
	for _, file := range []string{compile(f, program), compile(f, "int f(void) { return 1; }", "-shared", "-nostdlib")} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint64(0x1000))
	}
	f.Fuzz(func(t *testing.T, data []byte, offset uint64) {
		s, err := readSymbols(bytes.NewReader(data), int64(len(data)), "a")
		if err != nil || s.reason != Named {
			return
		}
		vaddr, _ := s.vaddr(offset)
		name, start, _ := s.find(vaddr, place{path: "/a"})
		if name != "" && start > vaddr {
			t.Errorf("%s at %#x covers %#x", name, start, vaddr)
		}
	})
}

func FuzzUnxz(f *testing.F) {
	f.Add([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F\x02\x00!\x01\x16\x00\x00\x00t/\xe5\xa3\x01\x00\x02abc\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		unxz(data)
	})
}

func FuzzText(f *testing.F) {
	f.Add("00400000-00452000 r-xp 00001000 08:02 173521      /a\nffffffff81000000 T a\t[b]\n10 8 x\n")
	f.Fuzz(func(t *testing.T, text string) {
		maps, _, err := parseMaps(strings.NewReader(text), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			if m.start >= m.end || m.path == "" {
				t.Errorf("%+v", m)
			}
		}
		if k, err := ParseKallsyms(strings.NewReader(text)); err == nil {
			k.Append(nil, []uint64{0xffffffff81000000})
		}
		table, err := parsePerfMap(strings.NewReader(text), int64(len(text)), "a")
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(table.starts); i++ {
			if table.end(i-1) > table.starts[i] {
				t.Errorf("functions overlap at %#x", table.starts[i])
			}
		}
	})
}

func FuzzSafe(f *testing.F) {
	f.Add("a\x1b;b\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		out := appendSafe(nil, s, true)
		if !utf8.Valid(out) {
			t.Errorf("%q is not valid", out)
		}
		if i := bytes.IndexFunc(out, func(r rune) bool { return r < ' ' || r == ';' || r == 0x7f }); i >= 0 {
			t.Errorf("%q contains a control character or a separator", out)
		}
	})
}
