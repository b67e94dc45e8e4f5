// Package output writes rows, histograms and messages about the run (ready, lost, summary) as text,
// JSON lines or CSV.
//
// In JSON, everything goes to the first stream, one object with a "type" per line. In text and CSV,
// the first stream has only rows; messages go to the second stream.
package output

import (
	"fmt"
	"io"

	"github.com/corescope/corescope/internal/column"
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
	rows     *rows
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
}

// New returns a Writer.
func New(o Options) *Writer {
	w := &Writer{format: o.Format, name: o.Name, out: o.Out, err: o.Err}
	w.rows = newRows(o.Format, o.Columns)
	if !o.NoHeader && len(o.Columns) > 0 {
		w.buf = w.rows.appendHeader(w.buf)
	}
	return w
}

// Format returns the writer's format.
func (w *Writer) Format() Format { return w.format }

// Row writes the row that the columns are bound to. kind is its "type" in JSON.
func (w *Writer) Row(kind string) error {
	w.buf = w.rows.appendRow(w.buf, kind)
	if len(w.buf) < batch {
		return nil
	}
	return w.Flush()
}

// Header writes the line of column names again.
func (w *Writer) Header() { w.buf = w.rows.appendHeader(w.buf) }

// Headers returns the cells of that line in text, padded to the width of their columns.
func (w *Writer) Headers() []string { return w.rows.headers() }

// Line returns the row that the columns are bound to as a line of text.
func (w *Writer) Line() string {
	line := w.rows.appendText(nil)
	return string(line[:len(line)-1])
}

// Append calls f with the buffer. f returns the buffer with its output appended.
func (w *Writer) Append(f func(b []byte) []byte) { w.buf = f(w.buf) }

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
