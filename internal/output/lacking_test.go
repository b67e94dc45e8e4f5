package output

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A column that the kernel does not support is n/a or null. A column that the run does not collect is
// omitted.
func TestLackingAndOff(t *testing.T) {
	for format, want := range map[Format]string{
		Text: "n/a   -         3", JSON: `{"type":"row","pid":null,"ret":3}`, CSV: ",,3",
	} {
		var r row
		r.set(7, "sh", 3, "", "")
		cols := columns(t, &r)[1:4]
		cols[0].Lacking, cols[1].Off = true, true
		var out bytes.Buffer
		w := New(Options{Format: format, Columns: cols, NoHeader: true, Out: &out, Err: io.Discard})
		if err := w.Row("row"); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil || out.String() != want+"\n" {
			t.Errorf("%s: %q, %v, want %q", format, out.String(), err, want)
		}
		if format == Text && strings.TrimSpace(w.Line()) != want {
			t.Errorf("line %q", w.Line())
		}
	}
}

func TestHeaders(t *testing.T) {
	var r row
	cols := columns(t, &r)[1:4]
	cols[0].Right = true
	w := New(Options{Format: Text, Columns: cols, NoHeader: true, Out: io.Discard})
	if got := strings.Join(w.Headers(), "|"); got != "  PID|COMM  | RET" {
		t.Errorf("%q", got)
	}
}
