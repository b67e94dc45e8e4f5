package source

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sort"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// groups counts rows that have equal values in the shown columns.
type groups struct {
	byKey map[string]*group
	key   []byte
	count uint64 // bound to the column "count"
}

// group is the last row of a group, and the number of its rows.
type group struct {
	key   string
	row   reflect.Value
	count uint64
}

const countKey = "count"

// add counts the row that row points to.
func (g *groups) add(row any, cols []column.Column) {
	g.key = g.key[:0]
	for i := range cols {
		if c := &cols[i]; c.Key != countKey && !c.Absent() {
			g.key = c.AppendJSON(g.key)
		}
		g.key = append(g.key, ',')
	}
	found := g.byKey[string(g.key)]
	if found == nil {
		if g.byKey == nil {
			g.byKey = map[string]*group{}
		}
		found = &group{key: string(g.key), row: reflect.New(reflect.TypeOf(row).Elem()).Elem()}
		g.byKey[found.key] = found
	}
	found.row.Set(reflect.ValueOf(row).Elem())
	found.count++
}

// sorted returns the groups, largest first.
func (g *groups) sorted() []*group {
	all := slices.Collect(maps.Values(g.byKey))
	sortRows(all, func(i, k int) int {
		return cmp.Or(cmp.Compare(all[k].count, all[i].count), cmp.Compare(all[i].key, all[k].key))
	})
	return all
}

// describeCounts adds the column "count".
func (e *events) describeCounts() *tool.Description {
	count, _ := value.Of(&e.groups.count)
	e.rows.cols.All = append(e.rows.cols.All, column.Column{
		Key: countKey, Header: cmp.Or(e.rows.headers[countKey], "COUNT"), Width: 10, Value: count,
		Help: "number of rows with the same values in the other shown columns",
	})
	keys := append(slices.Clone(e.count), countKey)
	e.rows.cols.Machine = keys
	return &tool.Description{Columns: &e.rows.cols, Text: keys}
}

// showCounts writes the groups.
func (e *events) showCounts(s *tool.Session) error {
	for _, g := range e.groups.sorted() {
		if s.Enough() {
			break
		}
		reflect.ValueOf(e.rows.row).Elem().Set(g.row)
		e.groups.count = g.count
		s.Shown++
		if err := s.Out.Row(output.KindEvent); err != nil {
			return err
		}
	}
	return s.Out.Flush()
}

// sortRows sorts a slice with a function that compares two indices. The generic functions of package
// slices would be instantiated for every tool, which increases the binary by 350 KB.
func sortRows(rows any, compare func(i, k int) int) {
	sort.Slice(rows, func(i, k int) bool { return compare(i, k) < 0 })
}
