package output

import (
	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/value"
)

// Typed is the format of a Writer with a Sink. The flag --output does not accept it.
const Typed Format = "typed"

// Sink receives the output of a run as typed values instead of text, JSON or CSV. The calls of a run
// come from one goroutine at a time. Arguments are valid until the call returns. An error ends the run.
type Sink interface {
	// Row receives the row that the columns are bound to. kind is its "type" in JSON.
	Row(kind string, cols []column.Column) error
	// Histogram receives the values of one key in the interval that ended at t, wall time.
	Histogram(t value.Time, key []column.Column, h *histogram.Histogram) error
	// Profile receives the counts by stack of one interval.
	Profile(p *flame.Profile) error
	// Ready is called once, when all hooks are attached.
	Ready(r Ready) error
	// Lost receives the events or counts lost since the previous call.
	Lost(l Lost) error
	// Summary is called once, at the end of the run.
	Summary(s Summary) error
}

// Histogram passes a histogram to the sink of the format Typed.
func (w *Writer) Histogram(t value.Time, key []column.Column, h *histogram.Histogram) error {
	return w.sink.Histogram(t, key, h)
}

// Profile passes a profile to the sink of the format Typed.
func (w *Writer) Profile(p *flame.Profile) error { return w.sink.Profile(p) }
