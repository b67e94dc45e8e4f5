// Package heatmap records histograms over time and writes them as heat maps (SVG, HTML): time from left
// to right, values from bottom to top, and the number of values as colour. There is one map per key of
// the histograms.
package heatmap

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/histogram"
)

// Bounds of the memory that a recorder takes, and of the size of the document. If there are more columns
// or cells, each column gets twice as many intervals. The values of keys after the first maxKeys are
// counted in one map.
const (
	maxColumns = 720
	maxCells   = 100_000
	maxKeys    = 64
)

// Recorder records the histograms of a run. The zero value has no unit; use [New].
type Recorder struct {
	title   string
	unit    histogram.Unit
	values  string // name of the values, if they are small integers
	columns []column
	series  []*series
	byKey   map[string]*series
	rest    *series // values of the keys after the first maxKeys
	// per is the number of intervals in each column.
	per   int
	added int // intervals
	cells int
	lost  string
}

// column is the time that a column covers.
type column struct{ begin, end time.Time }

// series is the histograms of one key: its cells in the order of columns, and of rows in a column.
type series struct {
	key   string
	count uint64
	cells []cell
}

type cell struct {
	column, row int
	count       uint64
}

// New returns a recorder. title is the command, values the name of values that are small integers.
func New(title string, unit histogram.Unit, values string) *Recorder {
	return &Recorder{title: title, unit: unit, values: values, byKey: map[string]*series{}, per: 1}
}

// Begin begins an interval. The histograms that are added belong to it.
func (r *Recorder) Begin(begin, end time.Time) {
	if r.added%r.per != 0 {
		r.columns[len(r.columns)-1].end = end
	} else {
		r.columns = append(r.columns, column{begin, end})
	}
	r.added++
}

// Add adds the histogram of a key in the current interval.
func (r *Recorder) Add(key string, h *histogram.Histogram) {
	s := r.seriesOf(key)
	before := len(s.cells)
	for _, b := range h.Buckets() {
		s.add(cell{len(r.columns) - 1, rowOf(r.unit.SlotOf(b.Lo)), b.Count})
	}
	r.cells += len(s.cells) - before
}

// End ends the interval, and halves the number of columns if there are too many columns or cells.
func (r *Recorder) End() {
	for len(r.columns) > 1 && (len(r.columns) > maxColumns || r.cells > maxCells) {
		r.halve()
	}
}

// SetLost sets the text about lost events that the document shows.
func (r *Recorder) SetLost(text string) { r.lost = text }

func (r *Recorder) seriesOf(key string) *series {
	if s := r.byKey[key]; s != nil {
		return s
	}
	if len(r.series) == maxKeys {
		if r.rest == nil {
			r.rest = &series{}
		}
		return r.rest
	}
	s := &series{key: clean(key)}
	r.series, r.byKey[key] = append(r.series, s), s
	return s
}

// clean replaces what XML does not allow: control characters and invalid UTF-8.
func clean(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == 0xfffe || c == 0xffff {
			return utf8.RuneError
		}
		return c
	}, text)
}

// add adds a cell to the last column of the series.
func (s *series) add(c cell) {
	s.count += c.count
	for i := len(s.cells); i > 0; i-- {
		switch last := &s.cells[i-1]; {
		case last.column == c.column && last.row == c.row:
			last.count += c.count
			return
		case last.column < c.column || last.row < c.row:
			s.cells = slices.Insert(s.cells, i, c)
			return
		}
	}
	s.cells = slices.Insert(s.cells, 0, c)
}

// halve merges pairs of columns.
func (r *Recorder) halve() {
	merged := r.columns[:0]
	for i, c := range r.columns {
		if i%2 == 0 {
			merged = append(merged, c)
		} else {
			merged[len(merged)-1].end = c.end
		}
	}
	r.columns, r.per, r.cells = merged, r.per*2, 0
	for _, s := range r.all() {
		old := s.cells
		s.cells, s.count = nil, 0
		for _, c := range old {
			c.column /= 2
			s.add(c)
		}
		r.cells += len(s.cells)
	}
}

// all returns the series, including the one of further keys.
func (r *Recorder) all() []*series {
	if r.rest == nil {
		return r.series
	}
	return append(slices.Clip(r.series), r.rest)
}

// rowOf returns the row of a slot: one per slot below 16, and then 4 per power of two.
func rowOf(slot int) int {
	if slot < 16 {
		return slot
	}
	return 16 + (slot-16)/4
}

// bounds returns the range of values of a row, lo <= value < hi.
func bounds(u histogram.Unit, row int) (lo, hi uint64) {
	if row < 16 {
		return u.Bounds(row)
	}
	first := 16 + (row-16)*4
	lo, _ = u.Bounds(first)
	_, hi = u.Bounds(first + 3)
	return lo, hi
}
