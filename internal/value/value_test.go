package value

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func ptr[T any](v T) *T { return &v }

// mustOf returns Of(ptr) and fails the test on an error.
func mustOf(t testing.TB, ptr any) Value {
	t.Helper()
	v, err := Of(ptr)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func comm(s string) *Comm {
	var c Comm
	copy(c[:], s)
	return &c
}

// values returns at least one value of each type with its expected representations.
func values() []struct {
	name       string
	ptr        any
	text, json string
	any        any
} {
	return []struct {
		name       string
		ptr        any
		text, json string
		any        any
	}{
		{"bool", ptr(true), "true", "true", true},
		{"uint8", ptr(uint8(255)), "255", "255", 255},
		{"uint16", ptr(uint16(65535)), "65535", "65535", 65535},
		{"uint32", ptr(uint32(math.MaxUint32)), "4294967295", "4294967295", math.MaxUint32},
		{"uint64", ptr(uint64(math.MaxUint64)), "18446744073709551615", "18446744073709551615", math.MaxInt},
		{"int32", ptr(int32(math.MinInt32)), "-2147483648", "-2147483648", math.MinInt32},
		{"int64", ptr(int64(math.MinInt64)), "-9223372036854775808", "-9223372036854775808", math.MinInt64},
		{"float", ptr(1.5), "1.50", "1.5", 1.5},
		{"large float", ptr(1e21), "1000000000000000000000.00", "1e+21", 1e21},
		{"infinity", ptr(math.Inf(-1)), "-Inf", "null", math.Inf(-1)},
		{"string", ptr("a\x1bé"), `a\x1bé`, `"a\u001bé"`, "a\x1bé"},
		{"bytes", &[]byte{'a', 0xff}, `a\xff`, `"a\ufffd"`, "a\xff"},
		{"Bytes", ptr(Bytes("/a\n")), `/a\n`, `"/a\n"`, "/a\n"},
		{"comm", comm("a b"), "a b", `"a b"`, "a b"},
		{"empty comm", comm(""), "", `""`, ""},
		{"comm with bytes after the NUL", comm("sh\x00wn"), "sh", `"sh"`, "sh"},
		{"comm without NUL", comm("0123456789abcdef"), "0123456789abcdef", `"0123456789abcdef"`, "0123456789abcdef"},
		{"list", ptr(List("ls\x00-l\x00")), "ls -l", `["ls","-l"]`, []string{"ls", "-l"}},
		{"list with an empty string", ptr(List("a\x00\x00b\x00")), "a  b", `["a","","b"]`, []string{"a", "", "b"}},
		{"list that ends with an empty string", ptr(List("a\x00\x00")), "a ", `["a",""]`, []string{"a", ""}},
		{"list of one empty string", ptr(List("\x00")), "", `[""]`, []string{""}},
		{"list without its last NUL", ptr(List("a\x00b")), "a b", `["a","b"]`, []string{"a", "b"}},
		{"empty list", ptr(List(nil)), "", `[]`, []string{}},
		{"Nanoseconds", ptr(Nanoseconds(1234567)), "1.23", "1234567", 1234567},
		{"Size", ptr(Size(1536)), "1.50", "1536", 1536},
		{"operation", ptr(FileOp(3)), "F", `"fsync"`, "fsync"},
		{"unknown operation", ptr(FileOp(77)), "U", `"unknown"`, "unknown"},
		{"Offset", &Offset{Count{2047, true}}, "1", "2047", 2047},
		{"error", ptr(Error(-2)), "ENOENT", `"ENOENT"`, "ENOENT"},
		{"open flags", ptr(OpenFlags(unix.O_WRONLY | unix.O_CREAT)), "O_WRONLY|O_CREAT", `["O_WRONLY","O_CREAT"]`, []string{"O_WRONLY", "O_CREAT"}},
		{"mode", &FileMode{0o644, true}, "0644", `"0644"`, "0644"},
	}
}

func TestRendering(t *testing.T) {
	for _, tt := range values() {
		t.Run(tt.name, func(t *testing.T) {
			v := mustOf(t, tt.ptr)
			// Bytes before the value are unchanged, whatever they end with.
			for _, before := range []string{"", "x ", "x,", `x"`} {
				if got := string(v.AppendText([]byte(before))); got != before+tt.text {
					t.Errorf("text %q, want %q", got, before+tt.text)
				}
				if got := string(v.AppendJSON([]byte(before))); got != before+tt.json {
					t.Errorf("JSON %q, want %q", got, before+tt.json)
				}
			}
			if got := v.Any(); fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", tt.any, tt.any) {
				t.Errorf("Any = %T %v, want %T %v", got, got, tt.any, tt.any)
			}
		})
	}
}

func TestSchemaFitsJSONAndAny(t *testing.T) {
	for _, tt := range values() {
		t.Run(tt.name, func(t *testing.T) {
			v := mustOf(t, tt.ptr)
			if f, ok := tt.ptr.(*float64); ok && math.IsInf(*f, 0) {
				return // null, tested by TestRendering
			}
			if got := jsonType(t, v.AppendJSON(nil)); got != v.Schema().Type && !(got == "integer" && v.Schema().Type == "number") {
				t.Errorf("JSON has type %s, schema has %s", got, v.Schema().Type)
			}
			if got := anyType(v.Any()); got != v.Schema().Type {
				t.Errorf("Any has type %T, schema has %s", v.Any(), v.Schema().Type)
			}
			if items := v.Schema().Items; (v.Schema().Type == "array") != (items != nil) {
				t.Errorf("schema of items %v for type %s", items, v.Schema().Type)
			}
		})
	}
}

func jsonType(t *testing.T, b []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	switch v := v.(type) {
	case bool:
		return "boolean"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return fmt.Sprintf("%T", v)
}

func anyType(v any) string {
	switch v.(type) {
	case bool:
		return "boolean"
	case int:
		return "integer"
	case float64:
		return "number"
	case string, time.Time:
		return "string"
	case []string:
		return "array"
	}
	return fmt.Sprintf("%T", v)
}

func TestAbsent(t *testing.T) {
	for _, tt := range []struct {
		ptr  any
		want bool
	}{
		{ptr(""), true},
		{ptr("x"), false},
		{ptr(Bytes(nil)), true},
		{ptr(Bytes{}), false},
		{ptr(Error(0)), true},
		{ptr(Error(3)), true},
		{ptr(Error(-1)), false},
		{&FileMode{Bits: 0o644}, true},
		{&FileMode{Given: true}, false},
	} {
		if got := mustOf(t, tt.ptr).(Optional).Absent(); got != tt.want {
			t.Errorf("%T %v: Absent = %v, want %v", tt.ptr, tt.ptr, got, tt.want)
		}
	}
}

func TestBase64IsExact(t *testing.T) {
	for _, s := range []string{"", "plain", "é", "\xff", "a\x80b", "\xe6\x97", "\xed\xa0\x80"} {
		for _, v := range []Value{ptr(Bytes(s)), comm(s), ptr(Name(s)), mustOf(t, ptr(s))} {
			e := v.(Exact)
			var back []byte
			if err := json.Unmarshal(e.AppendBase64(nil), &back); err != nil || string(back) != s {
				t.Errorf("base64 of %T %q decodes to %q, %v", v, s, back, err)
			}
			var text string
			if err := json.Unmarshal(v.AppendJSON(nil), &text); err != nil {
				t.Fatal(err)
			}
			if e.Valid() != (text == s) {
				t.Errorf("%T %q: Valid = %v, but JSON decodes to %q", v, s, e.Valid(), text)
			}
		}
	}
}

func TestListBase64(t *testing.T) {
	l := List("a\x00\xff\x00\x00")
	if l.Valid() {
		t.Error("Valid of a list with invalid UTF-8 is true")
	}
	var got []string
	if err := json.Unmarshal(l.AppendBase64(nil), &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"a", "\xff", ""}
	for i := range want {
		want[i] = base64.StdEncoding.EncodeToString([]byte(want[i]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("base64 %q, want %q", got, want)
	}
	if l = List("a\x00é\x00"); !l.Valid() {
		t.Error("Valid of a list with valid UTF-8 is false")
	}
}

// TestListCell expects that the CSV cell of a list is a JSON array of the escaped strings.
func TestListCell(t *testing.T) {
	for _, args := range [][]string{{}, {""}, {"a b", "c"}, {"a", "b c"}, {`"`, `\`, "\n", "\xff", "\u202e", ","}} {
		l := List(strings.Join(append(args, ""), "\x00"))
		var got []string
		if err := json.Unmarshal(l.AppendCell(nil), &got); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		var want []string
		for _, s := range args {
			want = append(want, string(AppendEscaped(nil, s)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("cell of %q: %q, want %q", args, got, want)
		}
	}
}

func TestListBreak(t *testing.T) {
	n := 0
	for range List("a\x00b\x00c\x00").All {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d strings before the break, want 2", n)
	}
}

func TestTime(t *testing.T) {
	for _, wall := range []time.Time{
		time.Unix(0, 0),
		time.Date(2026, 1, 2, 3, 4, 5, 60, time.UTC),
		time.Date(2026, 12, 31, 23, 59, 59, 999999999, time.UTC),
	} {
		v := Time(wall.UnixNano())
		var s string
		if err := json.Unmarshal(v.AppendJSON(nil), &s); err != nil {
			t.Fatal(err)
		}
		back, err := time.Parse("2006-01-02T15:04:05.000000000Z07:00", s)
		if err != nil || !back.Equal(wall) {
			t.Errorf("JSON of %s: %s, which parses as %s, %v", wall, s, back, err)
		}
		if got, want := string(v.AppendText(nil)), wall.Local().Format("15:04:05"); got != want {
			t.Errorf("text %s, want %s", got, want)
		}
		if got := v.Any().(time.Time); !got.Equal(wall) {
			t.Errorf("Any = %s, want %s", got, wall)
		}
	}
	if s := new(Time).Schema(); s.Type != "string" || s.Format != "date-time" {
		t.Errorf("schema %+v, want type string and format date-time", s)
	}
}

func TestErrorNames(t *testing.T) {
	for errno, want := range map[int32]string{
		1: "EPERM", 11: "EAGAIN", 95: "EOPNOTSUPP", 133: "EHWPOISON",
		512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 515: "ENOIOCTLCMD",
		516: "ERESTART_RESTARTBLOCK", 517: "EPROBE_DEFER", 524: "ENOTSUPP", 529: "EIOCBQUEUED", 531: "ENOGRACE",
		4000: "4000", math.MaxInt32: "2147483647",
	} {
		v := Error(-errno)
		if got := string(v.AppendText(nil)); got != want {
			t.Errorf("text of error %d: %s, want %s", -errno, got, want)
		}
	}
	smallest := Error(math.MinInt32)
	if got := string(smallest.AppendText(nil)); got != "2147483648" {
		t.Errorf("text of error %d: %s, want 2147483648", smallest, got)
	}
	if got := new(Error).Any(); got != "" {
		t.Errorf("Any of success = %q, want an empty string", got)
	}
}

func TestOfRejectsUnsupportedTypes(t *testing.T) {
	type named uint32
	for _, p := range []any{nil, 1, uint32(1), ptr(named(1)), &struct{}{}, ptr([]int{1})} {
		if v, err := Of(p); err == nil {
			t.Errorf("Of(%T) = %T, want an error", p, v)
		}
	}
}

func TestTaskHead(t *testing.T) {
	row := struct {
		Task
		Other int
	}{Task: Task{PID: 7, Time: 9}}
	if row.Head().PID != 7 || row.Stamp() != &row.Time {
		t.Errorf("head %v, stamp %v, want PID 7 and a pointer to Time", row.Head(), row.Stamp())
	}
}

func TestNoAllocations(t *testing.T) {
	buf := make([]byte, 0, 4096)
	more := append(values(), struct {
		name       string
		ptr        any
		text, json string
		any        any
	}{name: "time", ptr: ptr(Time(1e18))})
	for _, tt := range more {
		v := mustOf(t, tt.ptr)
		allocs := testing.AllocsPerRun(100, func() {
			buf = v.AppendText(buf[:0])
			buf = v.AppendJSON(buf[:0])
			if e, ok := v.(Exact); ok && !e.Valid() {
				buf = e.AppendBase64(buf[:0])
			}
		})
		if allocs != 0 {
			t.Errorf("%s: rendering allocates %v times, want 0", tt.name, allocs)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	path := Bytes("/usr/lib/x86_64-linux-gnu/libc.so.6")
	task := comm("systemd-journal")
	wall := Time(1e18)
	for _, bb := range []struct {
		name   string
		append func([]byte) []byte
	}{
		{"path/text", path.AppendText}, {"path/json", path.AppendJSON},
		{"comm/text", task.AppendText}, {"time/json", wall.AppendJSON},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf = bb.append(buf[:0])
			}
		})
	}
}
