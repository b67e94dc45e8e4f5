package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/target"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"vfs_read":                       "vfs_read: 0 items, 0 conditions",
		"r:c:malloc(retval) if pid == 1": "malloc returns: 1 items, 1 conditions",
		"f(return) if return > 1":        "f returns: 1 items, 1 conditions",
		"/x:main.(*T).Run(arg1)":         "main.(*T).Run: 1 items, 0 conditions",
		`t:a:b "%d%%", x`:                "a:b: 1 items, 0 conditions",
		" p::f (a == 1)":                 "f: 0 items, 1 conditions",
	} {
		p, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		name := p.Spec.Name
		if p.Spec.Return {
			name += " returns"
		}
		if got := fmt.Sprintf("%s: %d items, %d conditions", name, len(p.Items), len(p.Where)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]error{
		"": target.ErrMissing, "t:a": target.ErrSpec, "f(": compile.ErrSyntax, `f "%d"`: compile.ErrSyntax, `f "x", 1`: compile.ErrSyntax,
	} {
		if _, err := Parse(text); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

// site returns a site with one value of each kind. The last one could not be read.
func site(format string) *Site {
	char := &btf.Int{Name: "char", Size: 1, Encoding: btf.Signed}
	s := &Site{Probe: &Probe{Clauses: &compile.Clauses{Format: format}}}
	add := func(name, as string, size int, t btf.Type, isText bool) {
		offset := 8
		if n := len(s.slots); n > 0 {
			last := s.slots[n-1]
			if offset = last.Offset + 8; last.Text {
				offset += (last.Size + 7) &^ 7
			}
		}
		s.slots = append(s.slots, slot{compile.Slot{Name: name, Offset: offset, Size: size, Type: t, Text: isText}, as})
	}
	add("n", "", 8, &btf.Int{Size: 4, Encoding: btf.Signed}, false)
	add("u", "", 8, &btf.Int{Size: 8}, false)
	add("x", "x", 8, &btf.Int{Size: 2, Encoding: btf.Signed}, false)
	add("p", "", 8, &btf.Pointer{Target: char}, false)
	add("b", "", 8, &btf.Int{Size: 1, Encoding: btf.Bool}, false)
	add("e", "", 8, &btf.Enum{Size: 4, Values: []btf.EnumValue{{Name: "ONE", Value: 1}}}, false)
	add("s", "", 6, &btf.Pointer{Target: char}, true)
	add("missing", "", 8, &btf.Int{Size: 8}, false)
	return s
}

// data returns the bytes that fetch() writes for the site, with this string.
func data(s *Site, text string) []byte {
	var out []byte
	for _, n := range []uint64{1 << 7, 1<<64 - 5, 1<<64 - 1, 1<<64 - 1, 0xabc, 1, 1} {
		out = binary.NativeEndian.AppendUint64(out, n)
	}
	out = binary.NativeEndian.AppendUint64(out, uint64(min(6, len(text)+1)))
	out = append(out, (text + strings.Repeat("\x00", 8))[:8]...)
	return append(out, make([]byte, 8)...)
}

func TestValues(t *testing.T) {
	s := site("")
	v := s.Decode(data(s, "a\n"))
	if got, want := string(v.AppendText(nil)), `n=-5 u=18446744073709551615 x=0xffff p=0xabc b=true e=ONE s="a\n" missing=?`; got != want {
		t.Errorf("text %s, want %s", got, want)
	}
	if got, want := string(v.AppendJSON(nil)), `{"n":-5,"u":18446744073709551615,"x":"0xffff","p":"0xabc","b":true,"e":"ONE","s":"a\n"}`; got != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	v = s.Decode(data(s, "abcdefgh"))
	if got, want := string(v.AppendText(nil)), `s="abcd"... missing=?`; !strings.HasSuffix(got, want) {
		t.Errorf("truncated string: %s, want suffix %s", got, want)
	}
	v = s.Decode(data(s, "\xff"))
	if got, want := string(v.AppendJSON(nil)), `"s_base64":"/w=="}`; !strings.HasSuffix(got, want) {
		t.Errorf("string that is not UTF-8: %s, want suffix %s", got, want)
	}
	v.symbols = []string{1: "f\xff", 7: ""}
	if got, want := string(v.AppendJSON(nil)), `"u":"f\ufffd","u_base64":"Zv8="`; !strings.Contains(got, want) {
		t.Errorf("symbol that is not UTF-8: %s, want %s", got, want)
	}
	v.symbols = nil
	if got, _ := v.Any().(map[string]any); got["u"] != math.MaxInt || got["n"] != -5 {
		t.Errorf("filters see u %v and n %v, want the maximum of int and -5", got["u"], got["n"])
	}
	v = s.Decode(nil)
	if got := string(v.AppendJSON(nil)); got != "{}" {
		t.Errorf("no data: %s, want {}", got)
	}
}

func TestMessage(t *testing.T) {
	s := site("n=%5d|%-22llu|%x|%p|%d|%d|%10s|%d 100%%\x1b")
	v := s.Decode(data(s, "ab"))
	if got, want := string(v.AppendText(nil)), `n=   -5|18446744073709551615  |ffff|0xabc|true|ONE|        ab|? 100%\x1b`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`p:c:open(char *a, b:str) (x == 1) "%s %-5d", a, b if z`)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse(text); err != nil && !errors.Is(err, compile.ErrSyntax) && !errors.Is(err, target.ErrSpec) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
