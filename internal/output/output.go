// Package output writes rows, histograms and what is said about them (ready,
// lost, summary) as text, JSON lines or CSV.
//
// In JSON everything goes to one stream, an object a line, each with a "type". In
// text and CSV that stream has rows and nothing else; the rest goes to the second.
package output

import (
	"fmt"
	"io"

	"github.com/corescope/corescope/internal/column"
)

// Format is a way of writing.
type Format string

// The formats of --output.
const (
	Text Format = "text"
	JSON Format = "json"
	CSV  Format = "csv"
)

// batch is how much is gathered before it is written although more is to come.
const batch = 64 << 10

// Writer gathers output and writes it when told to, or when there is a batch.
// It is not safe for concurrent use.
type Writer struct {
	format   Format
	name     string
	out, err io.Writer
	rows     *rows
	buf      []byte
}

// Options say what a Writer writes, and how.
type Options struct {
	Format Format
	// Name of the tool, said before what goes to Err.
	Name string
	// Columns of its rows. Tools without rows have none.
	Columns []column.Column
	// NoHeader leaves out the line of column names that else comes first.
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

// Row appends the row that the columns are bound to. kind is its "type" in JSON.
func (w *Writer) Row(kind string) error {
	w.buf = w.rows.appendRow(w.buf, kind)
	if len(w.buf) < batch {
		return nil
	}
	return w.Flush()
}

// Header appends the line of column names once more.
func (w *Writer) Header() { w.buf = w.rows.appendHeader(w.buf) }

// Headers are the cells of that line in text, as wide as their columns.
func (w *Writer) Headers() []string { return w.rows.headers() }

// Line returns the row that the columns are bound to as a line of text.
func (w *Writer) Line() string {
	line := w.rows.appendText(nil)
	return string(line[:len(line)-1])
}

// Append appends what f appends, as it is.
func (w *Writer) Append(f func(b []byte) []byte) { w.buf = f(w.buf) }

// Flush writes what was gathered. The error is the stream's own, so a closed pipe
// is EPIPE.
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
