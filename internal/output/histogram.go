package output

import (
	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/value"
)

// AppendHistogram appends a histogram as a JSON line: the wall time of its report, the columns of
// its key, and what [histogram.Histogram.AppendJSON] appends.
func AppendHistogram(b []byte, t value.Time, key []column.Column, h *histogram.Histogram) []byte {
	b = append(b, `{"type":"`+KindHistogram+`","time":`...)
	b = t.AppendJSON(b)
	b = append(b, `,"key":`...)
	b = AppendObject(b, key)
	b = append(b, ',')
	b = h.AppendJSON(b)
	return append(b, '}', '\n')
}
