package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// Ranking are the options of tables with many rows.
type Ranking struct {
	Sort string `flag:"sort,s" arg:"COLUMN" help:"sort by this column, greatest first (+COLUMN: least first)"`
	Rows uint64 `flag:"rows,r" arg:"N" also:"maxrows" min:"1" help:"show only the first N rows of each interval; by default text has a limit, JSON and CSV have none"`
}

// Top are the options of tables that are redrawn on the terminal.
type Top struct {
	Rounds
	Ranking
	NoClear bool `flag:"noclear,C" help:"print tables one below the other, also on a terminal"`
	// NoLoad omits the load averages, which are shown after the time.
	NoLoad bool
}

// TopBy returns the defaults: a table every second, sorted by this column.
func TopBy(column string) Top {
	return Top{Rounds: Rounds{Every: flags.Duration(time.Second)}, Ranking: Ranking{Sort: column}}
}

// Table is a source of counts per interval, with a row per key: programs count into the map
// "table", keyed by struct table_key, with struct table_value as the value (table.bpf.h); their Go
// types are K and V. If K is struct{}, programs count into the single struct totals (totals.bpf.h),
// whose type is V.
//
// Fields of V of type uint64 are counters, summed over CPUs and over keys of equal rows. Other
// fields are taken from any one of the values; with a field of type [Since], from the earliest. Of
// fields of type [Max] the greatest is used. A
// row with a field CgroupID has the columns of the task's cgroup and container.
type Table[K comparable, V any, R comparable] struct {
	tool.Plan
	Rounds
	Ranking
	// Top replaces Rounds and Ranking: text output on a terminal is then redrawn in place.
	Top *Top
	// Columns lists the keys of the columns in text output.
	Columns []string
	// Headers maps keys of columns to titles in text that differ from the default, such as those of
	// peers.
	Headers map[string]string
	// Off lists the keys of columns that this run does not have.
	Off []string
	// SortNames maps further names for --sort to columns.
	SortNames map[string]string
	// Label returns the row of a key, with the fields that identify it. Counts of equal rows are
	// added.
	Label func(*K, *V) R
	// Fill sets the other fields of the row, for an interval of this length.
	Fill func(*R, *V, time.Duration)
	// Keep, if set, reports whether a row is shown.
	Keep func(*R) bool
	// Readings lists iterator programs that add what the kernel itself has counted since their
	// previous run to the same map. They run in this order at the end of each interval, and once
	// before the first.
	Readings []tool.Iterator
	// Cumulative is set if each report contains all counts since the start, not only those of its
	// interval.
	Cumulative bool
	// TextRows limits the rows of text output without --rows, except on a redrawn screen; 0 means
	// no limit, or 20 rows with Top.
	TextRows uint64

	span     span
	row      R // columns are bound to it and to span
	cols     tool.Columns
	order    column.Order
	counters []uintptr // offsets in V
	maxima   []uintptr // offsets of Max in V
	sinceAt  uintptr   // offset of Since in V, or 0
	epochs   epochs
	begin    time.Time // start of the interval
	sums     map[R]*V  // sums since the start, with Cumulative
	heading  string
	rows     []ranked[R]
}

// span is the interval of a row.
type span struct {
	Time     value.Time    `json:"time" col:"TIME,width=8" help:"end of the interval, wall time"`
	Interval value.Elapsed `json:"interval_ns" col:"INTERVAL,width=8,right" help:"length of the interval (CLOCK_MONOTONIC); text shows seconds"`
}

// tableEntry is struct table_entry of table.bpf.h, the key of the map.
type tableEntry[K any] struct {
	Key   K
	Epoch uint32
	CPU   uint32
}

// topRows is the default of TextRows with Top.
const topRows = 20

func (t *Table[K, V, R]) isScreen() bool { return t.Top != nil && !t.Top.NoClear }

// isTotals reports whether the table has a single row.
func (t *Table[K, V, R]) isTotals() bool { return reflect.TypeFor[K]().Size() == 0 }

func (t *Table[K, V, R]) Kind() string { return output.KindRow }

func (t *Table[K, V, R]) Describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	if err := t.check(spec); err != nil {
		return nil, err
	}
	if t.Top != nil {
		t.Rounds, t.Ranking, t.TextRows = t.Top.Rounds, t.Top.Ranking, topRows
	}
	return t.bind(env)
}

// bind binds the columns.
func (t *Table[K, V, R]) bind(env *tool.Env) (*tool.Description, error) {
	t.counters = fieldOffsets[uint64](reflect.TypeFor[V](), 0)
	t.maxima = fieldOffsets[Max](reflect.TypeFor[V](), 0)
	t.sinceAt = sinceOffset(reflect.TypeFor[V]())
	cols, err := column.Of(&t.span)
	if err != nil {
		return nil, err
	}
	own, err := column.Of(&t.row)
	if err != nil {
		return nil, err
	}
	cols = append(cols, own...)
	if id := reflect.ValueOf(&t.row).Elem().FieldByName("CgroupID"); id.IsValid() {
		cols = append(cols, tool.OwnerColumns(id.Addr().Interface().(*uint64), env)...)
	}
	for i := range cols {
		cols[i].Off = slices.Contains(t.Off, cols[i].Key)
		if header, ok := t.Headers[cols[i].Key]; ok {
			cols[i].Header = header
			cols[i].Width = max(cols[i].Width, len(header))
		}
	}
	t.cols = tool.Columns{All: cols}
	return &tool.Description{Columns: &t.cols, Text: t.Columns, Blocks: !t.isTotals(), Screen: t.isScreen()}, t.sortBy(t.Sort)
}

// sortBy sets the column that rows are sorted by, given its key, its title or a name in SortNames.
func (t *Table[K, V, R]) sortBy(word string) (err error) {
	if t.isTotals() {
		return nil
	}
	if name, ok := t.SortNames[word]; ok {
		word = name
	}
	t.order, err = column.NewOrder(t.cols.All, word)
	if err != nil {
		return fmt.Errorf("%w: --sort: %w", flags.ErrUsage, err)
	}
	t.cols.Sorted = t.order.Column
	return nil
}

func (t *Table[K, V, R]) check(spec *ebpf.CollectionSpec) error {
	if t.isTotals() {
		if m := spec.Maps["totals"]; m != nil {
			return checkStruct(m.Value, reflect.TypeFor[V]())
		}
		return errors.New("the object has no totals")
	}
	m := spec.Maps["table"]
	if m == nil {
		return errors.New("the object has no table")
	}
	return errors.Join(
		checkStruct(m.Key, reflect.TypeFor[tableEntry[K]]()),
		checkStruct(m.Value, reflect.TypeFor[V]()),
	)
}

func (t *Table[K, V, R]) Run(ctx context.Context, s *tool.Session) error {
	ctx, cancel, err := s.Attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := t.cols.Settle(s.Objects); err != nil {
		return err
	}
	if err := s.Prepare(t.Readings); err != nil {
		return err
	}
	t.epochs.readings = t.Readings
	if err := t.start(s); err != nil {
		return err
	}
	if t.isScreen() {
		// Ready drops capabilities that opening the terminal may need.
		if d, err := openDisplay(s, cancel); err != nil {
			return err
		} else if d != nil {
			return t.show(ctx, s, d)
		}
	}
	if err := s.Ready(); err != nil {
		return err
	}
	if s.Out.Format() == output.Text {
		t.limitText()
	}
	return t.repeat(ctx, s, &t.epochs, nil, func() error { return t.report(s, t.write) })
}

// start begins the first interval. Counts from before, when not all hooks were attached, are
// discarded.
func (t *Table[K, V, R]) start(s *tool.Session) error {
	if err := t.epochs.cut(s); err != nil {
		return err
	}
	return t.forget(s)
}

// forget discards the counts so far.
func (t *Table[K, V, R]) forget(s *tool.Session) error {
	t.begin = t.epochs.at
	_, err := t.drain(s)
	return err
}

// report reads the counts of the interval that has ended, and shows them. The last interval is
// shorter; if it is empty, it is not shown.
func (t *Table[K, V, R]) report(s *tool.Session, show func(*tool.Session) error) error {
	end := t.epochs.at
	last := !s.Objects.Attached()
	if last {
		if err := t.epochs.read(s); err != nil {
			return err
		}
		end = time.Now()
	}
	sums, err := t.drain(s)
	if err != nil {
		return err
	}
	length := end.Sub(t.begin)
	if last && s.Shown > 0 && t.isEmpty(sums) {
		return nil
	}
	if t.Cumulative {
		sums = t.addUp(sums)
	} else {
		t.begin = end
	}
	t.span = span{value.Time(end.UnixNano()), value.Elapsed(length)}
	t.heading = string(t.span.Time.AppendText(nil))
	if t.Top != nil && !t.Top.NoLoad {
		t.heading += " " + system.LoadAverage()
	}
	t.rank(s, sums, length)
	s.Shown++
	s.Events += uint64(len(t.rows))
	return show(s)
}

// limitText applies TextRows if --rows is not set.
func (t *Table[K, V, R]) limitText() {
	if t.Rows == 0 {
		t.Rows = t.TextRows
	}
}

// limit returns the number of rows to show.
func (t *Table[K, V, R]) limit(rows int) int {
	if t.Rows == 0 {
		return rows
	}
	return int(min(uint64(rows), t.Rows))
}

// title returns the line above the rows.
func (t *Table[K, V, R]) title() string {
	if n := t.limit(len(t.rows)); n < len(t.rows) {
		return fmt.Sprintf("%s (%d of %d rows)", t.heading, n, len(t.rows))
	}
	return t.heading
}
