package value

import (
	"slices"
	"testing"
)

func TestStack(t *testing.T) {
	v := &Stack{
		{Symbol: "tcp_v4_rcv", Module: "[kernel]", Offset: 16, Address: 0xffffffff81000010},
		{Symbol: "nf_hook\x1b", Module: "[nf_tables]", Address: 0xffffffffc0000000},
		{Address: 0xffffffff90000000},
	}
	for format, c := range map[string]struct{ got, want string }{
		"lines": {string(v.AppendLines(nil)), "    tcp_v4_rcv+0x10\n    nf_hook\\x1b+0x0 [nf_tables]\n    0xffffffff90000000\n"},
		"text":  {string(v.AppendText(nil)), "0xffffffff90000000;nf_hook\\x1b;tcp_v4_rcv"},
		"JSON": {string(v.AppendJSON(nil)), `[{"symbol":"tcp_v4_rcv","offset":16,"module":"[kernel]","address":"0xffffffff81000010"},` +
			`{"symbol":"nf_hook\u001b","offset":0,"module":"[nf_tables]","address":"0xffffffffc0000000"},{"address":"0xffffffff90000000"}]`},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", format, c.got, c.want)
		}
	}
	for i, want := range []Name{"tcp_v4_rcv", "nf_hook\x1b", "0xffffffff90000000"} {
		if got := (*v)[i].Name(); got != want {
			t.Errorf("Name = %q, want %q", got, want)
		}
	}
	if got := (&Frame{Module: "/a\nb", Offset: 16}).Name(); got != "/a\nb+0x10" {
		t.Errorf("Name = %q, want the module and the offset", got)
	}
	if got := v.Any().([]string); !slices.Equal(got, []string{"tcp_v4_rcv", "nf_hook\\x1b", "0xffffffff90000000"}) {
		t.Errorf("Any = %q, want the names", got)
	}
	if v.Absent() || !new(Stack).Absent() {
		t.Errorf("Absent = %v, of an empty stack %v, want false and true", v.Absent(), new(Stack).Absent())
	}
}

func TestStackLines(t *testing.T) {
	v := &Stack{
		{Symbol: "inner", Module: "/a", File: "/src/a\x1b.c", Line: 7, Inlined: true},
		{Symbol: "outer", Module: "/a", File: "/src/b.c", Line: 9, Offset: 4, Address: 16},
	}
	for format, c := range map[string]struct{ got, want string }{
		"lines": {string(v.AppendLines(nil)), "    inner /a a\\x1b.c:7\n    outer+0x4 /a b.c:9\n"},
		"text":  {string(v.AppendText(nil)), "outer b.c:9;inner a\\x1b.c:7"},
		"JSON": {string(v.AppendJSON(nil)), `[{"symbol":"inner","module":"/a","file":"/src/a\u001b.c","line":7,"inlined":true},` +
			`{"symbol":"outer","offset":4,"module":"/a","address":"0x10","file":"/src/b.c","line":9}]`},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", format, c.got, c.want)
		}
	}
}

// TestStackBase64 expects the exact bytes of names that are not UTF-8.
func TestStackBase64(t *testing.T) {
	v := &Stack{{Symbol: "f\xff", Module: "/a\xff", File: "/b\xff", Line: 7}, {Module: "/é"}}
	want := `[{"symbol":"f\ufffd","symbol_base64":"Zv8=","offset":0,"module":"/a\ufffd","module_base64":"L2H/","address":"0x10",` +
		`"file":"/b\ufffd","file_base64":"L2L/","line":7},{"offset":0,"module":"/é"}]`
	(*v)[0].Address = 16
	if got := string(v.AppendJSON(nil)); got != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	for _, key := range []string{"symbol_base64", "module_base64", "file_base64"} {
		if _, ok := v.Schema().Items.Properties[key]; !ok {
			t.Errorf("the schema lacks %s", key)
		}
	}
}

func TestKernelValues(t *testing.T) {
	addr, none, passive := Address(0xffff888100000000), Direction(0), Direction(2)
	if text, js := string(addr.AppendText(nil)), string(addr.AppendJSON(nil)); text != "ffff888100000000" || js != `"0xffff888100000000"` {
		t.Errorf("address: text %s, JSON %s", text, js)
	}
	if !none.Absent() || none.Any() != "" || passive.Absent() || passive.Any() != "passive" {
		t.Errorf("Direction: Any of 0 = %q, of 2 = %q, want none and passive", none.Any(), passive.Any())
	}
	if short := (Span{1}); short.Absent() || !new(Span).Absent() {
		t.Errorf("Span: Absent of 1 = %v, of 0 = %v, want false and true", short.Absent(), new(Span).Absent())
	}
}
