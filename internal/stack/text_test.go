package stack

import "testing"

var frames = []Frame{
	{Addr: 0xffffffff81000010, Name: "schedule", Module: "[kernel]", Offset: 0x10, Kernel: true},
	{Addr: 0xffffffffc0000010, Module: "[kernel]", Offset: 0xffffffffc0000010, Kernel: true, Reason: NoSymbols},
	{Addr: 0x401010, Name: "small", Module: "/bin/a", Offset: 4, Inlined: true, File: "a.c", Line: 7},
	{Addr: 0x401010, Name: "ns::big(int)", Module: "/bin/a", Offset: 0x10, BuildID: "ab01"},
	{Addr: 0x7f0000001234, Module: "/usr/lib/x.so", Offset: 0x1234, BuildID: "ab01", Reason: NoSymbols},
	{Addr: 0x99, Reason: Unmapped},
}

func TestAppendText(t *testing.T) {
	want := `    schedule
    [kernel]+0xffffffffc0000010 (no symbols)
    small
    ns::big(int)
    /usr/lib/x.so+0x1234 (no symbols, build-id ab01)
    0x99 (unmapped)
`
	if got := string(AppendText(nil, frames, false)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAppendTextVerbose(t *testing.T) {
	want := `    0xffffffff81000010 schedule+0x10 ([kernel])
    0xffffffffc0000010 [kernel]+0xffffffffc0000010 (no symbols)
    0x0000000000401010 small+0x4 (/bin/a) a.c:7 inlined
    0x0000000000401010 ns::big(int)+0x10 (/bin/a)
    0x00007f0000001234 /usr/lib/x.so+0x1234 (no symbols, build-id ab01)
    0x0000000000000099 0x99 (unmapped)
`
	if got := string(AppendText(nil, frames, true)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAppendFolded(t *testing.T) {
	want := "prog;0x99;x.so+0x1234;ns::big(int);small_[i];[kernel]+0xffffffffc0000010_[k];schedule_[k]"
	if got := string(AppendFolded([]byte("prog;"), frames)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := AppendFolded(nil, nil); len(got) != 0 {
		t.Errorf("no frames: got %q", got)
	}
}

func TestAppendSafe(t *testing.T) {
	tests := []struct{ in, text, folded string }{
		{"", "", ""},
		{"std::vector<int, std::allocator<int> >", "std::vector<int, std::allocator<int> >", "std::vector<int, std::allocator<int> >"},
		{"Lcom/x;::y", "Lcom/x;::y", "Lcom/x:::y"},
		{"größe_数", "größe_数", "größe_数"},
		{"a\x1b[2Jb\r\n\tc", `a\x1b[2Jb\r\n\tc`, `a\x1b[2Jb\r\n\tc`},
		{"a\x7f\u0085", `a\x7f\u0085`, `a\x7f\u0085`},
		{"a\u202eb\u200b\u2028", `a\u202eb\u200b\u2028`, `a\u202eb\u200b\u2028`},
		{"bad\xff\xc3", `bad\xff\xc3`, `bad\xff\xc3`},
		{`a\x1b`, `a\\x1b`, `a\\x1b`},
	}
	for _, test := range tests {
		if got := string(appendSafe(nil, test.in, false)); got != test.text {
			t.Errorf("appendSafe(%q) = %q, want %q", test.in, got, test.text)
		}
		if got := string(appendSafe(nil, test.in, true)); got != test.folded {
			t.Errorf("appendSafe(%q) folded = %q, want %q", test.in, got, test.folded)
		}
	}
}

func TestFrameIsSafe(t *testing.T) {
	f := Frame{Name: "a\x1b", Module: "/b\x1b", File: "c\x1b", Line: 1}
	unnamed := Frame{Module: "/b\x1b"}
	for _, frames := range [][]Frame{{f}, {unnamed}} {
		for _, b := range [][]byte{
			AppendText(nil, frames, false),
			AppendText(nil, frames, true),
			AppendFolded(nil, frames),
			[]byte(frames[0].String()),
		} {
			for _, c := range b {
				if c == 0x1b {
					t.Errorf("escape character in %q", b)
				}
			}
		}
	}
}

func TestReasonText(t *testing.T) {
	for r := NoSymbols; r <= Replaced; r++ {
		text, err := r.MarshalText()
		if err != nil || len(text) == 0 || string(text) == "unknown" {
			t.Errorf("reason %d: %q, %v", r, text, err)
		}
	}
	if Named.String() != "" || (Replaced+1).String() != "unknown" {
		t.Errorf("Named is %q, want \"\"; an invalid reason is %q, want unknown", Named, Replaced+1)
	}
}
