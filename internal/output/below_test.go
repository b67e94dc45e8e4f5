package output

import (
	"bytes"
	"testing"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/value"
)

// Text shows a stack below its row, CSV in a cell.
func TestLinesBelowTheRow(t *testing.T) {
	row := &struct {
		PID   uint32      `json:"pid" col:"PID,width=5"`
		Stack value.Stack `json:"stack" col:"STACK"`
		Port  uint16      `json:"port" col:"PORT,width=5"`
	}{PID: 7, Stack: value.Stack{{Symbol: "inner", Offset: 1, Address: 0x1001}, {Symbol: "outer", Address: 0x2000}}, Port: 80}
	cols, err := column.Of(row)
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[Format]string{
		Text: "PID   PORT\n7     80\n    inner+0x1\n    outer+0x0\n",
		CSV:  "pid,stack,port\n7,outer;inner,80\n",
	} {
		var out bytes.Buffer
		w := New(Options{Format: format, Columns: cols, Out: &out, Err: &out})
		if err := w.Row("event"); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v, want %q", format, &out, err, want)
		}
	}
}
