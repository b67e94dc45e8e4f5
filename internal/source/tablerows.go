package source

import (
	"strings"
	"time"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
)

// ranked is a row with the value that it is sorted by.
type ranked[R any] struct {
	row   R
	value any
	line  string // the row as text, to order rows with equal values
}

// rank converts sums to rows, and filters and sorts these.
func (t *Table[K, V, R]) rank(s *tool.Session, sums map[R]*V, length time.Duration) {
	t.rows = t.rows[:0]
	for row, v := range sums {
		t.row = row
		t.Fill(&t.row, v, length)
		if (t.Keep == nil || t.Keep(&t.row)) && s.Wanted(&t.cols) {
			t.rows = append(t.rows, ranked[R]{row: t.row})
		}
	}
	t.sort(s)
}

func (t *Table[K, V, R]) sort(s *tool.Session) {
	if t.isTotals() {
		return
	}
	for i := range t.rows {
		t.row = t.rows[i].row
		t.rows[i].value = t.order.Value()
		t.rows[i].line = ""
	}
	sortRows(t.rows, func(i, k int) int {
		a, b := &t.rows[i], &t.rows[k]
		if n := t.order.Compare(a.value, b.value); n != 0 {
			return n
		}
		return strings.Compare(t.line(s, a), t.line(s, b))
	})
}

// line returns the row as text.
func (t *Table[K, V, R]) line(s *tool.Session, r *ranked[R]) string {
	t.row = r.row
	return s.Out.Line()
}

// write writes the rows: in text a block with a heading, or a single line for totals.
func (t *Table[K, V, R]) write(s *tool.Session) error {
	isBlock := s.Out.Format() == output.Text && !t.isTotals()
	if isBlock {
		s.Out.Append(func(b []byte) []byte { return append(append(b, t.title()...), '\n') })
		if !s.HasNoHeader() {
			s.Out.Header()
		}
	}
	for i := range t.rows[:t.limit(len(t.rows))] {
		t.row = t.rows[i].row
		if err := s.Out.Row(output.KindRow); err != nil {
			return err
		}
	}
	if isBlock {
		s.Out.Append(func(b []byte) []byte { return append(b, '\n') })
	}
	return s.Out.Flush()
}
