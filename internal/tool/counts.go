package tool

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/value"
)

// groups counts rows that are alike in the columns that are shown.
type groups[R any] struct {
	byKey map[string]*alike[R]
	key   []byte
	count uint64 // the one that the column "count" is bound to
}

// alike is the last of the rows that are alike, and how many they are.
type alike[R any] struct {
	key   string
	row   R
	count uint64
}

const countKey = "count"

func (g *groups[R]) add(row *R, cols []column.Column) {
	g.key = g.key[:0]
	for i := range cols {
		if c := &cols[i]; c.Key != countKey && !c.Absent() {
			g.key = c.AppendJSON(g.key)
		}
		g.key = append(g.key, ',')
	}
	one := g.byKey[string(g.key)]
	if one == nil {
		if g.byKey == nil {
			g.byKey = map[string]*alike[R]{}
		}
		one = &alike[R]{key: string(g.key)}
		g.byKey[one.key] = one
	}
	one.row = *row
	one.count++
}

// sorted lists the groups, those of most rows first.
func (g *groups[R]) sorted() []*alike[R] {
	all := slices.Collect(maps.Values(g.byKey))
	sortRows(all, func(i, k int) int {
		return cmp.Or(cmp.Compare(all[k].count, all[i].count), cmp.Compare(all[i].key, all[k].key))
	})
	return all
}

// describeCounts adds the column of how many rows are alike.
func (e *Events[R]) describeCounts() *description {
	count, _ := value.Of(&e.groups.count)
	e.rows.cols.all = append(e.rows.cols.all, column.Column{
		Key: countKey, Header: "COUNT", Width: 10, Value: count,
		Help: "rows that are alike in the other columns that are shown",
	})
	keys := append(slices.Clone(e.Count), countKey)
	e.rows.cols.machine = keys
	return &description{columns: &e.rows.cols, text: keys}
}

// showCounts shows what was counted.
func (e *Events[R]) showCounts(s *session) error {
	for _, g := range e.groups.sorted() {
		if s.enough() {
			break
		}
		*e.rows.row, e.groups.count = g.row, g.count
		s.shown++
		if err := s.out.Row(kindEvent); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// sortRows sorts a slice by what compare says of two of its indices. Package slices would
// do it in code of its own for every tool: 350 KB in all.
func sortRows(rows any, compare func(i, k int) int) {
	sort.Slice(rows, func(i, k int) bool { return compare(i, k) < 0 })
}
