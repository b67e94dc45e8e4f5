package tool

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
	"github.com/corescope/corescope/internal/value"
)

// Ranking are the options of tables that have many rows.
type Ranking struct {
	Sort string `flag:"sort,s" arg:"COLUMN" help:"sort by this column, the greatest first; +COLUMN puts the least first"`
	Rows uint64 `flag:"rows,r" arg:"N" also:"maxrows" help:"show only the first N rows of each interval; text has its own limit without it"`
}

// Top are the options of tables that are a screen.
type Top struct {
	Rounds
	Ranking
	NoClear bool `flag:"noclear,C" help:"on a terminal too, print one table below the other"`
	// NoLoad leaves the load averages out, which are said beside the time.
	NoLoad bool
}

// TopBy are the defaults: a table each second, by this column.
func TopBy(column string) Top {
	return Top{Rounds: Rounds{Every: flags.Duration(time.Second)}, Ranking: Ranking{Sort: column}}
}

// Table is what programs count by interval, a row for each key: into the map "table" by
// struct table_key and struct table_value (table.bpf.h), whose Go types are K and V, or,
// where K is struct{}, into the one struct totals (totals.bpf.h), whose type is V.
//
// Fields of V that are uint64 are counters, which are added up over CPUs and over keys of
// equal rows; the others are kept from any of them. A row with a CgroupID has columns for
// what that tells of its task.
type Table[K, V any, R comparable] struct {
	Plan
	Rounds
	Ranking
	// Top, in place of these two, makes text on a terminal a screen that is drawn again.
	Top *Top
	// Columns are the keys of the columns that text shows.
	Columns []string
	// Headers are what text calls columns, by key, where users know them by other
	// names than the usual.
	Headers map[string]string
	// Off are the keys of columns that no row of this run has.
	Off []string
	// SortNames are other words for --sort, by which columns they stand for.
	SortNames map[string]string
	// Label makes the row of a key, as far as it does not follow from what was counted.
	// Keys of equal rows are added up.
	Label func(*K, *V) R
	// Fill fills the other columns of the row, for an interval of that length.
	Fill func(*R, *V, time.Duration)
	// Readings are iterator programs that count what the kernel has counted since they
	// last did, into the same map. They are run at the end of each interval, one after
	// another, and once before the first.
	Readings []Iterator
	// Cumulative reports are of all since the start, not of their intervals.
	Cumulative bool
	// TextRows is how many rows text has at the most, but on a screen, where the user
	// does not say; 0 is all, or 20 of a table that can be a screen.
	TextRows uint64

	span     span
	row      R // the one that columns are bound to, as span is
	cols     columns
	order    column.Order
	counters []uintptr // offsets in V
	epochs   epochs
	begin    time.Time // of the interval
	sums     map[R]*V  // since the start, if they are reported
	heading  string
	rows     []ranked[R]
}

// span is the interval that a row is of.
type span struct {
	Time     value.Time    `json:"time" col:"TIME,width=8" help:"when the interval ended, wall time"`
	Interval value.Elapsed `json:"interval_ns" col:"INTERVAL,width=8,right" help:"how long it was; text shows seconds"`
}

// tableEntry is struct table_entry of table.bpf.h, the key of the map.
type tableEntry[K any] struct {
	Key   K
	Epoch uint32
	CPU   uint32
}

// topRows is how many rows a table has in text that can be a screen.
const topRows = 20

func (t *Table[K, V, R]) isScreen() bool { return t.Top != nil && !t.Top.NoClear }

// isTotals tells that there is one row.
func (t *Table[K, V, R]) isTotals() bool { return reflect.TypeFor[K]().Size() == 0 }

func (t *Table[K, V, R]) kind() string { return kindRow }

func (t *Table[K, V, R]) describe(env *Env, spec *ebpf.CollectionSpec) (*description, error) {
	if err := t.check(spec); err != nil {
		return nil, err
	}
	if t.Top != nil {
		t.Rounds, t.Ranking, t.TextRows = t.Top.Rounds, t.Top.Ranking, topRows
	}
	return t.bind(env)
}

// bind binds the columns.
func (t *Table[K, V, R]) bind(env *Env) (*description, error) {
	t.counters = counterOffsets(reflect.TypeFor[V](), 0)
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
		cols = append(cols, ownerColumns(id.Addr().Interface().(*uint64), env)...)
	}
	for i := range cols {
		cols[i].Off = slices.Contains(t.Off, cols[i].Key)
		if header, ok := t.Headers[cols[i].Key]; ok {
			cols[i].Header = header
			cols[i].Width = max(cols[i].Width, len(header))
		}
	}
	t.cols = columns{all: cols}
	return &description{columns: &t.cols, text: t.Columns, blocks: !t.isTotals(), screen: t.isScreen()}, t.sortBy(t.Sort)
}

// sortBy sets the order by a column's name or a peer's word for it.
func (t *Table[K, V, R]) sortBy(word string) (err error) {
	if t.isTotals() {
		return nil
	}
	if name, ok := t.SortNames[word]; ok {
		word = name
	}
	t.order, err = column.NewOrder(t.cols.all, word)
	if err != nil {
		return err
	}
	t.cols.sorted = t.order.Column
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

func (t *Table[K, V, R]) run(ctx context.Context, s *session) error {
	ctx, cancel, err := s.attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := t.cols.settle(s.objects); err != nil {
		return err
	}
	if err := s.prepare(t.Readings); err != nil {
		return err
	}
	t.epochs.readings = t.Readings
	if err := t.start(s); err != nil {
		return err
	}
	if t.isScreen() {
		// Before the rights are gone that opening the terminal may take.
		if d, err := s.openDisplay(cancel); err != nil {
			return err
		} else if d != nil {
			return t.show(ctx, s, d)
		}
	}
	if err := s.ready(); err != nil {
		return err
	}
	if s.out.Format() == output.Text {
		t.limitText()
	}
	return t.repeat(ctx, s, &t.epochs, nil, func() error { return t.report(s, t.write) })
}

// start begins the first interval. What was counted before, when not all hooks were
// attached, is forgotten.
func (t *Table[K, V, R]) start(s *session) error {
	if err := t.epochs.cut(s); err != nil {
		return err
	}
	return t.forget(s)
}

// forget leaves out what was counted until now.
func (t *Table[K, V, R]) forget(s *session) error {
	t.begin = t.epochs.at
	_, err := t.drain(s)
	return err
}

// report reads the interval that is over and shows it. The last one is cut short; when
// there is nothing in it, it is left out.
func (t *Table[K, V, R]) report(s *session, show func(*session) error) error {
	end := t.epochs.at
	last := !s.objects.Attached()
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
	if last && s.shown > 0 && t.isEmpty(sums) {
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
	s.shown++
	s.events += uint64(len(t.rows))
	return show(s)
}

// limitText leaves text its own limit of rows if the user sets none.
func (t *Table[K, V, R]) limitText() {
	if t.Rows == 0 {
		t.Rows = t.TextRows
	}
}

// limit is how many of the rows are shown.
func (t *Table[K, V, R]) limit(rows int) int {
	if t.Rows == 0 {
		return rows
	}
	return int(min(uint64(rows), t.Rows))
}

// title is the line above the rows.
func (t *Table[K, V, R]) title() string {
	if n := t.limit(len(t.rows)); n < len(t.rows) {
		return fmt.Sprintf("%s (%d of %d rows)", t.heading, n, len(t.rows))
	}
	return t.heading
}
