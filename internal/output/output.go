// Package output writes rows, histograms and messages about the run (ready, lost, summary) as text,
// JSON lines or CSV.
//
// In JSON, everything goes to the first stream, one object with a "type" per line. In text and CSV,
// the first stream has only rows; messages go to the second stream.
package output

import (
	"fmt"
	"io"
	"strconv"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/value"
)

// Format is an output format.
type Format string

// The formats of --output.
const (
	Text Format = "text"
	JSON Format = "json"
	CSV  Format = "csv"
)

// batch is the number of buffered bytes at which they are written without a call of Flush.
const batch = 64 << 10

// Writer buffers output. It writes the buffer when it is flushed or has 64 KiB. It is not safe for
// concurrent use.
type Writer struct {
	format   Format
	name     string
	out, err io.Writer
	sink     Sink
	rows     *rows
	stamps   bool // Options.Stamps
	buf      []byte
}

// Options configure a Writer.
type Options struct {
	Format Format
	// Name of the tool: the prefix of messages to Err.
	Name string
	// Columns of the rows. Histograms have none.
	Columns []column.Column
	// NoHeader omits the line of column names at the start.
	NoHeader bool
	Out, Err io.Writer
	// Stamps puts a mark with the time before each unit of text and CSV (see Begin), and a mark before
	// column names, for a reader that merges the output of several runs.
	Stamps bool
	// Sink replaces Out and Err in the format Typed.
	Sink Sink
}

// New returns a Writer.
func New(o Options) *Writer {
	w := &Writer{format: o.Format, name: o.Name, out: o.Out, err: o.Err, sink: o.Sink, stamps: o.Stamps && o.Format != JSON && o.Format != Typed}
	w.rows = newRows(o.Format, o.Columns)
	if !o.NoHeader && len(o.Columns) > 0 {
		w.Header()
	}
	return w
}

// Format returns the writer's format.
func (w *Writer) Format() Format { return w.format }

// Row writes the row that the columns are bound to. kind is its "type" in JSON.
func (w *Writer) Row(kind string) error {
	if w.format == Typed {
		return w.sink.Row(kind, w.rows.cols)
	}
	w.buf = w.rows.appendRow(w.buf, kind)
	if len(w.buf) < batch {
		return nil
	}
	return w.Flush()
}

// StampsVariable is the environment variable that sets Options.Stamps.
const StampsVariable = "CORESCOPE_STAMPS"

// The marks of Options.Stamps: HeaderMark, and the time in ns between StampBegin and StampEnd. A run for
// another host ends with a line of ExitMark and the exit code.
const (
	StampBegin = "\x1e"
	StampEnd   = "\x1f"
	HeaderMark = StampBegin + "h" + StampEnd
	ExitMark   = StampBegin + "x" + StampEnd
)

// Header writes the line of column names again.
func (w *Writer) Header() {
	if w.stamps {
		w.buf = append(w.buf, HeaderMark...)
	}
	w.buf = w.rows.appendHeader(w.buf)
}

// Begin begins a unit of the output: a row, or the lines of an interval. t is its wall time.
func (w *Writer) Begin(t value.Time) {
	if w.stamps {
		w.buf = append(strconv.AppendInt(append(w.buf, StampBegin...), int64(t), 10), StampEnd...)
	}
}

// Headers returns the cells of that line in text, padded to the width of their columns.
func (w *Writer) Headers() []string { return w.rows.headers() }

// Line returns the row that the columns are bound to as a line of text.
func (w *Writer) Line() string {
	line := w.rows.appendText(nil)
	return string(line[:len(line)-1])
}

// Append calls f with the buffer. f returns the buffer with its output appended. The format Typed has
// no buffer: f is not called.
func (w *Writer) Append(f func(b []byte) []byte) {
	if w.format != Typed {
		w.buf = f(w.buf)
	}
}

// Flush writes the buffer. It wraps the error of the stream: EPIPE for a closed pipe.
func (w *Writer) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.out.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
