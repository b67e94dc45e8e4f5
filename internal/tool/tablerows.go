package tool

import (
	"strings"
	"time"

	"github.com/corescope/corescope/internal/output"
)

// ranked is a row with what it is sorted by.
type ranked[R any] struct {
	row   R
	value any
	line  string // made when values are equal
}

// rank makes the rows of what was counted, those that are wanted, in their order.
func (t *Table[K, V, R]) rank(s *session, sums map[R]*V, length time.Duration) {
	t.rows = t.rows[:0]
	for row, v := range sums {
		t.row = row
		t.Fill(&t.row, v, length)
		if s.wanted(&t.cols) {
			t.rows = append(t.rows, ranked[R]{row: t.row})
		}
	}
	t.sort(s)
}

func (t *Table[K, V, R]) sort(s *session) {
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

// line is the row as text.
func (t *Table[K, V, R]) line(s *session, r *ranked[R]) string {
	t.row = r.row
	return s.out.Line()
}

// write writes the rows: in text a block with a heading, or one line for totals.
func (t *Table[K, V, R]) write(s *session) error {
	isBlock := s.out.Format() == output.Text && !t.isTotals()
	if isBlock {
		s.out.Append(func(b []byte) []byte { return append(append(b, t.title()...), '\n') })
		if !s.common.NoHeader {
			s.out.Header()
		}
	}
	for i := range t.rows[:t.limit(len(t.rows))] {
		t.row = t.rows[i].row
		if err := s.out.Row(kindRow); err != nil {
			return err
		}
	}
	if isBlock {
		s.out.Append(func(b []byte) []byte { return append(b, '\n') })
	}
	return s.out.Flush()
}
