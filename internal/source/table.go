package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unsafe"

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

// Absent returns an error if the options are given for a run that shows histograms because of a flag.
func (r Ranking) Absent(because string) error {
	if r.Sort != "" || r.Rows != 0 {
		return fmt.Errorf("--sort and --rows cannot be combined with --%s: they apply to tables, and it shows histograms", because)
	}
	return nil
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
// Fields of V of type uint64 are counters, summed over CPUs and over keys of equal rows. The columns of
// R with their names, in snake_case, are counters too, and others whose tag says so. Other
// fields are taken from any one of the values; with a field of type [Since], from the earliest. Of
// fields of type [Max] the greatest is used. A
// row with a field CgroupID has the columns of the task's cgroup and container.
type Table[K comparable, V any, R comparable] struct {
	tool.Plan
	Rounds
	Ranking
	// Top replaces Rounds and Ranking: text output on a terminal is then redrawn in place.
	Top *Top
	// MaxKeys, if set, is a bound of the number of keys. The map is then smaller, which saves memory, and
	// time at the end of each interval: the kernel looks for entries in all of its buckets.
	MaxKeys uint32
	// Index, if set, returns the key of an index: programs count keys with an index in the map
	// "table_arrays", which takes less time (TABLE_INDEXES in table.bpf.h).
	Index Index[K]
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
	// Survey, if set, is called with all rows of a report and their values before Fill, such as to compute
	// shares.
	Survey Survey[R, V]
	// Keep, if set, reports whether a row is shown.
	Keep func(*R) bool
	// Readings lists iterator programs that add what the kernel itself has counted since their
	// previous run to the same map. They run in this order at the end of each interval, and once
	// before the first.
	Readings []tool.Iterator
	// Due, if set, finds the samples of CPUs that were due and not taken, and Missing returns the
	// counts that they add: idle samples in which the CPU was idle, and missed ones, which are lost.
	// It is called for each online CPU.
	Due     *Due
	Missing Missing[K, V]
	// Poll, if set, replaces the programs: it yields counters that the kernel maintains, and is
	// called at the start and at the end of each interval, which has the differences. A key that
	// is gone at the end is counted as unobserved, because its last counts are unknown.
	Poll Poll[K, V]
	// Cumulative is set if each report contains all counts since the start, not only those of its
	// interval.
	Cumulative bool
	// TextRows limits the rows of text output without --rows, except on a redrawn screen; 0 means
	// no limit, or 20 rows with Top.
	TextRows uint64

	row   R
	table table
}

// table is the part of Table that does not depend on its types, so that the binary contains it only
// once.
type table struct {
	rounds     *Rounds
	ranking    *Ranking
	top        *Top
	textRows   uint64
	readings   []tool.Iterator
	cumulative bool
	due        *Due
	missing    func(missing) (key, value unsafe.Pointer)         // Table.Missing
	poll       func(yield func(key, value unsafe.Pointer)) error // Table.Poll
	index      func(uint32) unsafe.Pointer                       // Table.Index

	entry, value reflect.Type // tableEntry[K] and V
	// row points to the row of the generic type: columns are bound to it and to span.
	row any
	// label returns the row of a key and a value.
	label func(key, value unsafe.Pointer) any
	// fill sets the other fields of row from a value.
	fill func(value unsafe.Pointer, length time.Duration)
	// survey, if set, is called with all rows and values before fill.
	survey func(sums)
	// keep reports whether row is shown.
	keep func() bool

	span     span
	cols     tool.Columns
	order    column.Order
	names    map[string]string // Table.SortNames
	counters []uintptr         // offsets in V
	maxima   []uintptr         // offsets of Max in V
	sinceAt  uintptr           // offset of Since in V, or 0
	epochs   epochs
	begin    time.Time // start of the interval
	sums     sums      // sums since the start, with cumulative
	// polled has the previous result of Poll, by the bytes of the key.
	polled map[string]unsafe.Pointer
	// keys has the counts that are not in the map any more, by the bytes of the key.
	keys    map[string]unsafe.Pointer
	heading string
	rows    []ranked
}

// sums maps rows to their values.
type sums map[any]unsafe.Pointer

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

func (t *table) isScreen() bool { return t.top != nil && !t.top.NoClear }

// isTotals reports whether the table has a single row.
func (t *table) isTotals() bool { return t.entry.Field(0).Type.Size() == 0 }

func (t *Table[K, V, R]) Kind() string { return output.KindRow }

func (t *Table[K, V, R]) Describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	if t.Top != nil {
		t.Rounds, t.Ranking, t.TextRows = t.Top.Rounds, t.Top.Ranking, topRows
	}
	t.table = table{
		rounds: &t.Rounds, ranking: &t.Ranking, top: t.Top, textRows: t.TextRows, readings: t.Readings, cumulative: t.Cumulative,
		entry: reflect.TypeFor[tableEntry[K]](), value: reflect.TypeFor[V](), row: &t.row, names: t.SortNames,
		label: func(key, value unsafe.Pointer) any {
			if t.Label == nil {
				var row R
				return row
			}
			return t.Label((*K)(key), (*V)(value))
		},
		fill:   func(value unsafe.Pointer, length time.Duration) { t.Fill(&t.row, (*V)(value), length) },
		keep:   func() bool { return t.Keep == nil || t.Keep(&t.row) },
		survey: t.Survey.read, due: t.Due, missing: t.Missing.counts, index: t.Index.key, poll: t.Poll.read,
	}
	t.table.setFilling(spec)
	if err := sizeCounts(spec, &t.Plan, "table", t.table.epochs.filling, uint64(t.MaxKeys)); err != nil {
		return nil, err
	}
	t.table.setUpArrays(spec, &t.Plan)
	if err := t.table.check(spec); err != nil {
		return nil, err
	}
	return t.table.bind(env, t.Columns, t.Headers, t.Off)
}

// setUpArrays sets the variable for Table.Index, and minimizes the map of arrays if the run has none.
func (t *table) setUpArrays(spec *ebpf.CollectionSpec, plan *tool.Plan) {
	if spec.Maps["table_arrays"] == nil {
		return
	}
	if plan.Variables == nil {
		plan.Variables = map[string]any{}
	}
	plan.Variables["table_indexed"] = t.index != nil
	if t.index != nil {
		return
	}
	if plan.MapEntries == nil {
		plan.MapEntries = map[string]uint32{}
	}
	plan.MapEntries["table_arrays"] = 1
}

func (t *Table[K, V, R]) Run(ctx context.Context, s *tool.Session) error { return t.table.run(ctx, s) }

// bind binds the columns. columns lists those of text, and off those that this run does not have.
func (t *table) bind(env *tool.Env, columns []string, headers map[string]string, off []string) (*tool.Description, error) {
	t.counters = fieldOffsets[uint64](t.value, 0)
	t.maxima = fieldOffsets[Max](t.value, 0)
	t.sinceAt = sinceOffset(t.value)
	cols, err := column.Of(&t.span)
	if err != nil {
		return nil, err
	}
	own, err := column.Of(t.row)
	if err != nil {
		return nil, err
	}
	cols = append(cols, own...)
	if id := reflect.ValueOf(t.row).Elem().FieldByName("CgroupID"); id.IsValid() {
		for _, c := range tool.OwnerColumns(id.Addr().Interface().(*uint64), env) {
			c.Extra = !slices.Contains(columns, c.Key) // a table of cgroups shows their names in JSON too
			cols = append(cols, c)
		}
	}
	summed := snakeNames[uint64](t.value)
	for i := range cols {
		cols[i].Counter = cols[i].Counter || slices.Contains(summed, cols[i].Key)
		cols[i].Off = slices.Contains(off, cols[i].Key)
		if header, ok := headers[cols[i].Key]; ok {
			cols[i].Header = header
			cols[i].Width = max(cols[i].Width, len(header))
		}
	}
	t.cols = tool.Columns{All: cols}
	return &tool.Description{Columns: &t.cols, Text: columns, Blocks: !t.isTotals(), Screen: t.isScreen()}, t.sortBy(t.ranking.Sort)
}

// sortBy sets the column that rows are sorted by, given its key, its title or a name in SortNames.
func (t *table) sortBy(word string) (err error) {
	if t.isTotals() {
		return nil
	}
	if name, ok := t.names[word]; ok {
		word = name
	}
	t.order, err = column.NewOrder(t.cols.All, word)
	if err != nil {
		return fmt.Errorf("%w: --sort: %w", flags.ErrUsage, err)
	}
	t.cols.Sorted = t.order.Column
	return nil
}

func (t *table) check(spec *ebpf.CollectionSpec) error {
	if t.poll != nil {
		return nil
	}
	if t.isTotals() {
		if m := spec.Maps["totals"]; m != nil {
			return checkStruct(m.Value, t.value)
		}
		return errors.New("the object has no totals")
	}
	m := spec.Maps["table"]
	if m == nil {
		return errors.New("the object has no table")
	}
	err := errors.Join(
		checkStruct(m.Key, t.entry),
		checkStruct(m.Value, t.value),
	)
	if t.index != nil && spec.Maps["table_arrays"] == nil {
		err = errors.Join(err, errors.New("the object has no table_arrays"))
	}
	return err
}

func (t *table) run(ctx context.Context, s *tool.Session) error {
	ctx, cancel, err := s.Attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := t.cols.Settle(s.Objects); err != nil {
		return err
	}
	if err := s.Prepare(t.readings); err != nil {
		return err
	}
	t.epochs.readings, t.epochs.due = t.readings, t.due
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
	return t.rounds.repeat(ctx, s, &t.epochs, nil, func() error { return t.report(s, t.write) })
}

// start begins the first interval. Counts from before, when not all hooks were attached, are
// discarded.
func (t *table) start(s *tool.Session) error {
	if err := t.epochs.cut(s); err != nil {
		return err
	}
	return t.forget(s)
}

// forget discards the counts so far.
func (t *table) forget(s *tool.Session) error {
	t.begin = t.epochs.at
	t.due.take(s)
	_, err := t.drain(s)
	return err
}

// report reads the counts of the interval that has ended, and shows them. The last interval is
// shorter; if it is empty, it is not shown.
func (t *table) report(s *tool.Session, show func(*tool.Session) error) error {
	end := t.epochs.at
	last := !s.Objects.Attached()
	if last {
		at, err := t.epochs.endInterval(s)
		if err == nil {
			err = t.epochs.read(s)
		}
		if err != nil {
			return err
		}
		if end = time.Now(); s.Objects.Variables["interval_end_ns"] != nil {
			end = at
		}
	}
	sums, err := t.drain(s)
	if err != nil {
		return err
	}
	for _, m := range t.due.take(s) {
		if t.missing != nil {
			key, v := t.missing(m)
			t.addTo(sums, key, v)
		}
	}
	length := end.Sub(t.begin)
	if last && s.Shown > 0 && t.isEmpty(sums) {
		return nil
	}
	if t.cumulative {
		sums = t.addUp(sums)
	} else {
		t.begin = end
	}
	t.span = span{value.Time(end.UnixNano()), value.Elapsed(length)}
	t.heading = string(t.span.Time.AppendText(nil))
	if t.top != nil && !t.top.NoLoad {
		t.heading += " " + system.LoadAverage()
	}
	t.rank(s, sums, length)
	s.Shown++
	s.Events += uint64(len(t.rows))
	return show(s)
}

// limitText applies TextRows if --rows is not set.
func (t *table) limitText() {
	if t.ranking.Rows == 0 {
		t.ranking.Rows = t.textRows
	}
}

// limit returns the number of rows to show.
func (t *table) limit(rows int) int {
	if t.ranking.Rows == 0 {
		return rows
	}
	return int(min(uint64(rows), t.ranking.Rows))
}

// title returns the line above the rows.
func (t *table) title() string {
	if n := t.limit(len(t.rows)); n < len(t.rows) {
		return fmt.Sprintf("%s (%d of %d rows)", t.heading, n, len(t.rows))
	}
	return t.heading
}
