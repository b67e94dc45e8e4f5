package source

import (
	"reflect"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
)

// ranked is a row with the value that it is sorted by.
type ranked struct {
	row   any
	value any
	line  string // the row as text, to order rows with equal values
}

// rank converts sums to rows, and filters and sorts these.
func (t *table) rank(s *tool.Session, all sums, length time.Duration) {
	t.rows = t.rows[:0]
	if t.survey != nil {
		t.survey(all)
	}
	for row, v := range all {
		t.set(row)
		t.fill(v, length)
		if t.keep() && s.Wanted(&t.cols) {
			t.rows = append(t.rows, ranked{row: reflect.ValueOf(t.row).Elem().Interface()})
		}
	}
	t.sort(s)
}

// set assigns to the row that columns are bound to.
func (t *table) set(row any) { reflect.ValueOf(t.row).Elem().Set(reflect.ValueOf(row)) }

func (t *table) sort(s *tool.Session) {
	if t.isTotals() {
		return
	}
	for i := range t.rows {
		t.set(t.rows[i].row)
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
func (t *table) line(s *tool.Session, r *ranked) string {
	t.set(r.row)
	return s.Out.Line()
}

// write writes the rows: in text a block with a heading, or a single line for totals.
func (t *table) write(s *tool.Session) error {
	isBlock := s.Out.Format() == output.Text && !t.isTotals()
	s.Out.Begin(t.span.Time)
	if isBlock {
		s.Out.Append(func(b []byte) []byte { return append(append(b, t.title()...), '\n') })
		if !s.HasNoHeader() {
			s.Out.Header()
		}
	}
	for i := range t.rows[:t.limit(len(t.rows))] {
		t.set(t.rows[i].row)
		if err := s.Out.Row(output.KindRow); err != nil {
			return err
		}
	}
	if isBlock {
		s.Out.Append(func(b []byte) []byte { return append(b, '\n') })
	}
	return s.Out.Flush()
}
