package output

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/value"
)

// row has a column of each type that the formats treat differently.
type row struct {
	Time  value.Time  `json:"time" col:"TIME,width=8"`
	PID   uint32      `json:"pid" col:"PID,width=5"`
	Comm  value.Comm  `json:"comm" col:"COMM,width=6"`
	Ret   int32       `json:"ret" col:"RET,width=4,right"`
	Error value.Error `json:"error" col:"ERROR,width=6"`
	Args  value.List  `json:"args" col:"ARGS,width=6"`
	Path  value.Bytes `json:"path" col:"PATH,width=20"`
}

var at = time.Date(2026, 5, 1, 10, 20, 30, 40, time.UTC)

func (r *row) set(pid uint32, comm string, ret int32, args, path string) {
	*r = row{
		Time: value.Time(at.UnixNano()), PID: pid, Ret: ret, Error: value.Error(ret),
		Args: value.List(args), Path: value.Bytes(path),
	}
	copy(r.Comm[:], comm)
}

// rowsOf returns the rows of the golden files: plain values, values wider than their columns, control
// characters, and an absent path.
func rowsOf(r *row) []func() {
	return []func(){
		func() { r.set(7, "sh", 3, "ls\x00-l\x00", "/etc/passwd") },
		func() { r.set(1234567, "very-long-name", -2147483648, "a\x00b,c\x00", "/a b/\"c\"") },
		func() { r.set(8, "日本", -2, "\xff\x00", "/x\x1b[31m\n\xff") },
		func() { r.set(9, "sh", 0, "", ""); r.Path = nil },
	}
}

func columns(t testing.TB, r *row) []column.Column {
	t.Helper()
	cols, err := column.Of(r)
	if err != nil {
		t.Fatal(err)
	}
	return cols
}

// write returns the output of these rows without the time, which depends on the time zone.
func write(t *testing.T, format Format, noHeader bool) string {
	t.Helper()
	var r row
	var out bytes.Buffer
	w := New(Options{Format: format, Name: "tool", Columns: columns(t, &r)[1:], NoHeader: noHeader, Out: &out, Err: io.Discard})
	for _, set := range rowsOf(&r) {
		set()
		if err := w.Row("event"); err != nil {
			t.Fatal(err)
		}
	}
	if out.Len() != 0 {
		t.Errorf("written before the flush: %q", out.String())
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestRows(t *testing.T) {
	for _, tt := range []struct {
		format Format
		header string
		rows   string
	}{
		{Text, `PID   COMM    RET ERROR  ARGS   PATH
`, `7     sh        3 -      ls -l  /etc/passwd
1234567 very-long-name -2147483648 2147483648 a b,c  /a b/"c"
8     日本       -2 ENOENT \xff   /x\x1b[31m\n\xff
9     sh        0 -      -      -
`},
		{JSON, "", `{"type":"event","pid":7,"comm":"sh","ret":3,"args":["ls","-l"],"path":"/etc/passwd"}
{"type":"event","pid":1234567,"comm":"very-long-name","ret":-2147483648,"error":"2147483648","args":["a","b,c"],"path":"/a b/\"c\""}
{"type":"event","pid":8,"comm":"日本","ret":-2,"error":"ENOENT","args":["\ufffd"],"args_base64":["/w=="],"path":"/x\u001b[31m\n\ufffd","path_base64":"L3gbWzMxbQr/"}
{"type":"event","pid":9,"comm":"sh","ret":0,"args":[]}
`},
		{CSV, `pid,comm,ret,error,args,path
`, `7,sh,3,,"[""ls"",""-l""]",/etc/passwd
1234567,very-long-name,-2147483648,2147483648,"[""a"",""b,c""]","/a b/""c"""
8,日本,-2,ENOENT,"[""\\xff""]",/x\x1b[31m\n\xff
9,sh,0,,[],
`},
	} {
		t.Run(string(tt.format), func(t *testing.T) {
			if got := write(t, tt.format, false); got != tt.header+tt.rows {
				t.Errorf("got\n%swant\n%s", got, tt.header+tt.rows)
			}
			if got := write(t, tt.format, true); got != tt.rows {
				t.Errorf("without a header: got\n%swant\n%s", got, tt.rows)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	var r row
	r.set(1, "", 0, "", "")
	cols := columns(t, &r)[:1]
	for format, want := range map[Format]string{
		Text: at.Local().Format("15:04:05"),
		JSON: `{"type":"event","time":"` + at.Local().Format("2006-01-02T15:04:05.000000000Z07:00") + `"}`,
		CSV:  at.Local().Format("2006-01-02T15:04:05.000000000Z07:00"),
	} {
		var out bytes.Buffer
		w := New(Options{Format: format, Columns: cols, NoHeader: true, Out: &out})
		for range 3 {
			if err := w.Row("event"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil || out.String() != strings.Repeat(want+"\n", 3) {
			t.Errorf("%s: %q, %v, want three times %q", format, out.String(), err, want)
		}
	}
}

// Readers of CSV skip empty lines.
func TestCSVOfOneAbsentColumn(t *testing.T) {
	var r row
	var out bytes.Buffer
	w := New(Options{Format: CSV, Columns: columns(t, &r)[6:], Out: &out})
	for _, path := range []value.Bytes{nil, value.Bytes("/x"), {}} {
		r.Path = path
		if err := w.Row("event"); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(all) != 4 || all[1][0] != "" || all[2][0] != "/x" || all[3][0] != "" {
		t.Errorf("%q, %v", all, err)
	}
}

func TestRightAlignedLastColumn(t *testing.T) {
	r := struct {
		A uint32 `json:"a" col:"A,width=70"`
		B uint32 `json:"b" col:"B,width=4,right"`
	}{1, 22}
	cols, err := column.Of(&r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := New(Options{Format: Text, Columns: cols, Out: &out})
	if err := errors.Join(w.Row("event"), w.Flush()); err != nil {
		t.Fatal(err)
	}
	pad := strings.Repeat(" ", 69)
	if want := "A" + pad + "    B\n1" + pad + "   22\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestObjectsAndCells(t *testing.T) {
	var r row
	r.set(7, "s\xff", 0, "", "")
	r.Path = nil
	cols := columns(t, &r)
	for _, tt := range []struct {
		cols []column.Column
		want string
	}{
		{nil, `x{}`},
		{cols[6:], `x{}`},
		{cols[1:3], `x{"pid":7,"comm":"s\ufffd","comm_base64":"c/8="}`},
		{[]column.Column{cols[6], cols[1]}, `x{"pid":7}`},
	} {
		if got := string(AppendObject([]byte("x"), tt.cols)); got != tt.want {
			t.Errorf("object %s, want %s", got, tt.want)
		}
	}
	r.Path = value.Bytes("a,b")
	for i, want := range map[int]string{1: "x7", 2: `xs\xff`, 4: "x", 6: `x"a,b"`} {
		if got := string(AppendCell([]byte("x"), &cols[i])); got != want {
			t.Errorf("cell of %s is %s, want %s", cols[i].Key, got, want)
		}
	}
}

// lines counts writes. It fails after a number of them.
type lines struct {
	bytes.Buffer
	writes, limit int
	err           error
}

func (l *lines) Write(b []byte) (int, error) {
	l.writes++
	if l.limit > 0 && l.writes > l.limit {
		return 0, l.err
	}
	return l.Buffer.Write(b)
}

func TestRowsAreWrittenInBatches(t *testing.T) {
	var r row
	r.set(1, "sh", 0, "", strings.Repeat("x", 1000))
	for _, format := range []Format{Text, JSON, CSV} {
		out := &lines{}
		w := New(Options{Format: format, Columns: columns(t, &r), Out: out})
		for range 1000 {
			if err := w.Row("event"); err != nil {
				t.Fatal(err)
			}
		}
		before := out.Len()
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if least := out.Len() / (batch + 2000); out.writes < least || out.writes > out.Len()/batch+1 {
			t.Errorf("%s: %d writes of %d bytes", format, out.writes, out.Len())
		}
		if out.Len()-before >= batch {
			t.Errorf("%s: %d bytes were not written", format, out.Len()-before)
		}
		if n := strings.Count(out.String(), "\n"); n < 1000 || n > 1001 {
			t.Errorf("%s: %d lines of 1000 rows", format, n)
		}
	}
}

func TestFlushOfNothingWritesNothing(t *testing.T) {
	out := &lines{}
	w := New(Options{Format: JSON, Out: out})
	if err := w.Flush(); err != nil || out.writes != 0 {
		t.Errorf("%d writes, %v", out.writes, err)
	}
}

func TestWriteErrors(t *testing.T) {
	broken := errors.New("broken")
	var r row
	r.set(1, "sh", 0, "", strings.Repeat("x", 1000))
	for name, use := range map[string]func(*Writer) error{
		"flush":   func(w *Writer) error { _ = w.Row("event"); return w.Flush() },
		"ready":   func(w *Writer) error { return w.Ready(Ready{}) },
		"lost":    func(w *Writer) error { return w.Lost(Lost{Lost: 1}) },
		"summary": func(w *Writer) error { return w.Summary(Summary{}) },
		"append": func(w *Writer) error {
			w.Append(func(b []byte) []byte { return append(b, 'x') })
			return w.Flush()
		},
		"batch": func(w *Writer) error {
			for range 1000 {
				if err := w.Row("event"); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		out := &lines{limit: 1, err: broken}
		w := New(Options{Format: JSON, Columns: columns(t, &r), Out: out, Err: io.Discard})
		if err := w.Ready(Ready{}); err != nil {
			t.Fatal(err)
		}
		if err := use(w); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want %v", name, err, broken)
		}
	}
}

// A row with any bytes is one line: of JSON that contains the exact bytes, of CSV that parses as one
// record, or of text without terminal control sequences.
func FuzzRow(f *testing.F) {
	f.Add([]byte("sh"), []byte("a\x00"), []byte("/x"))
	f.Add([]byte("\"\\"), []byte("\x00\x00"), []byte("\n\r\""))
	f.Add([]byte("\xff"), []byte("\x1b,"), []byte("\u202e\xe6\x97"))
	var r row
	cols, err := column.Of(&r)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, comm, args, path []byte) {
		r.set(1, string(comm), -1, string(args), string(path))
		r.Path = append([]byte{}, path...)
		for _, format := range []Format{Text, JSON, CSV} {
			line := newRows(format, cols).appendRow(nil, "event")
			body, ok := bytes.CutSuffix(line, []byte("\n"))
			if !ok || bytes.ContainsFunc(body, func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 }) || !utf8.Valid(body) {
				t.Fatalf("%s: %q is not one line", format, line)
			}
			switch format {
			case JSON:
				checkJSON(t, &r, line)
			case CSV:
				if all, err := csv.NewReader(bytes.NewReader(line)).ReadAll(); err != nil || len(all) != 1 || len(all[0]) != len(cols) {
					t.Fatalf("%q parses as %q, %v", line, all, err)
				}
			}
		}
	})
}

func checkJSON(t *testing.T, r *row, line []byte) {
	t.Helper()
	var got struct {
		Comm, Path string
		Args       []string
		ArgsBase64 []string `json:"args_base64"`
	}
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(line, &raw); err != nil {
		t.Fatal(err)
	}
	if back := exact(t, got.Path, raw["path_base64"]); back != string(r.Path) {
		t.Fatalf("path %q was decoded as %q from %s", r.Path, back, line)
	}
	if back := exact(t, got.Comm, raw["comm_base64"]); back != r.Comm.String() {
		t.Fatalf("comm %q was decoded as %q from %s", r.Comm, back, line)
	}
	i := 0
	for arg := range r.Args.All {
		back := got.Args[i]
		if got.ArgsBase64 != nil {
			b, err := base64.StdEncoding.DecodeString(got.ArgsBase64[i])
			if err != nil {
				t.Fatal(err)
			}
			back = string(b)
		}
		if back != string(arg) {
			t.Fatalf("argument %d, %q, was decoded as %q from %s", i, arg, back, line)
		}
		i++
	}
	if i != len(got.Args) {
		t.Fatalf("%d arguments, not %d, in %s", len(got.Args), i, line)
	}
}

// exact returns the exact bytes of a string: from KEY_base64 if it is present.
func exact(t *testing.T, text string, b64 json.RawMessage) string {
	t.Helper()
	if b64 == nil {
		return text
	}
	var b []byte
	if err := json.Unmarshal(b64, &b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRowAllocatesNothing(t *testing.T) {
	var r row
	sets := rowsOf(&r)[:1]
	sets = append(sets, func() { r.set(8, "日本\u202e", -2, "\xff\x00", "/x\x1b\xff") })
	for _, format := range []Format{Text, JSON, CSV} {
		w := New(Options{Format: format, Columns: columns(t, &r), Out: io.Discard})
		for i, set := range sets {
			set()
			if n := testing.AllocsPerRun(1000, func() { _ = w.Row("event") }); n != 0 {
				t.Errorf("%s: row %d: %v allocations, want 0", format, i, n)
			}
		}
	}
}

func BenchmarkRow(b *testing.B) {
	var r row
	r.set(1234, "systemd-journal", -2, "ls\x00-l\x00/usr/share/doc\x00", "/usr/lib/x86_64-linux-gnu/libc.so.6")
	for _, format := range []Format{Text, JSON, CSV} {
		b.Run(string(format), func(b *testing.B) {
			w := New(Options{Format: format, Columns: columns(b, &r), Out: io.Discard})
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Row("event"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
