package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// Stacks is a source of counts by stack: programs count into a table (table.bpf.h) whose keys
// contain stack IDs, of type StackID in K, and send each stack when it first occurs (stacks.bpf.h).
// Rows that are equal after symbolization are added.
type Stacks[K comparable, V any, R comparable] struct {
	tool.Plan
	StackOptions
	// UserStacks is omitted by tools without user stacks. KernelOnly is set if this run has none.
	stacktrace.UserStacks
	KernelOnly bool
	// Sort is the key of the column with the weight of a row.
	Sort string
	// Off lists the keys of columns that this run does not have.
	Off []string
	// Unit is the unit of weights, Period the time between two samples in ns, if weights are
	// samples.
	Unit   flame.Unit
	Period uint64
	// Label returns the row of a key. Its stacks are looked up in the traces.
	Label func(*K, *stacktrace.Traces) R
	// Fill sets the other fields of a row. Weight then returns the weight of the row.
	Fill   func(*R, *V)
	Weight func(*R) uint64
	// Parts returns the parts of a row in folded stacks, outermost first; text shows them in
	// reverse order.
	Parts func(*R) []Part
	// RingBytes is the size of the buffer for new stacks; 0 means 4 MB.
	RingBytes int
	// Held, if set, is a *Held: its entries are counted, and there is no table.
	Held holdings[K, V]
	// Usual is the default interval between reports; documents (pprof, SVG, …) have one report.
	// Count, if set, is the number of reports.
	Usual time.Duration
	Count uint64
	// Rows, if set, limits the rows of a report to the first ones by Sort, which can be a name in
	// SortNames. TextRows applies to text if Rows is 0.
	Rows, TextRows uint64
	SortNames      map[string]string
	// Heading, if set, returns the line above a report with that number of rows. Caption, if set,
	// returns the line above the stacks of a row, which replaces the weight below them.
	Heading func(rows int) string
	Caption func(*R) string

	row   R
	table table
	due   *Due // of a tool that samples
	stackReading
	counts map[K]unsafe.Pointer // since the last report, of keys whose stacks have not been received yet
	sums   sums                 // since the last report, of all other keys
}

// Part is a part of a row: a stack, or a line of text.
type Part struct {
	// Trace is the stack, shown upside down if Reverse is set.
	Trace   value.Trace
	Reverse bool
	// Label is the line, if there is no trace. Text output has Title before it and More after it.
	Label, Title, More string
	// Mark is set for a line between two stacks.
	Mark bool
}

// ringBytes has space for about 10,000 stacks.
const ringBytes = 4 << 20

// drainEvery is the interval at which counts are moved out of the map. If a tool takes few samples, it
// is longer, up to slowestDrain, because a drain takes 0.6 ms.
const (
	drainEvery   = time.Second
	slowestDrain = 5 * time.Second
)

// drainInterval is the time of 1,000 samples, with the limits of drainEvery and slowestDrain.
func drainInterval(perSecond uint64) time.Duration {
	return timeOfSamples(1000, perSecond, drainEvery, slowestDrain)
}

// sampledDelay returns the time for which stacks wait in the ring buffer: that of 200 samples, for which
// it has space even if each has the largest stacks, at most a second.
func sampledDelay(perSecond uint64) time.Duration {
	return timeOfSamples(200, perSecond, stackDelay, time.Second)
}

// timeOfSamples returns the time in which n samples are taken, within limits; without sampling, which is
// 0 samples per second, the shortest.
func timeOfSamples(n time.Duration, perSecond uint64, shortest, longest time.Duration) time.Duration {
	if perSecond == 0 {
		return shortest
	}
	return max(shortest, min(longest, n*time.Second/time.Duration(perSecond)))
}

func (s *Stacks[K, V, R]) Kind() string { return output.KindRow }

// Base adds the capabilities for symbolization.
func (s *Stacks[K, V, R]) Base() *tool.Plan {
	s.Keep = namesKeep()
	return &s.Plan
}

func (s *Stacks[K, V, R]) Describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	s.unwind = s.ByTables() && !s.KernelOnly
	s.Delay = cmp.Or(s.Delay, sampledDelay(s.Sampling.PerSecond()))
	if err := s.stackReading.describe(spec, &s.Plan, reflect.TypeFor[K](), s.ringBytes()); err != nil {
		return nil, err
	}
	var err error
	if s.traces, err = stacktrace.New(spec, &s.Frames, &s.UserStacks, env.Machine()); err != nil {
		return nil, err
	}
	if perSecond := s.Sampling.PerSecond(); perSecond > 0 {
		s.MapEntries["table"] = sampledEntries(perSecond)
		s.due = due(s.Sampling)
	}
	s.table = table{
		rounds: &Rounds{s.Every, s.Count}, ranking: &Ranking{s.Sort, s.Rows}, textRows: s.TextRows, names: s.SortNames,
		entry: reflect.TypeFor[tableEntry[K]](), value: reflect.TypeFor[V](), row: &s.row,
		label: func(key, _ unsafe.Pointer) any { return s.Label((*K)(key), s.traces) },
		fill:  func(value unsafe.Pointer, _ time.Duration) { s.Fill(&s.row, (*V)(value)) },
		keep:  func() bool { return true },
	}
	check := s.table.check
	if s.Held != nil {
		check = s.Held.check
	} else if err := s.setFilling(spec); err != nil {
		return nil, err
	}
	if err := check(spec); err != nil {
		return nil, err
	}
	return s.table.bind(env, nil, nil, s.Off)
}

// setFilling sets how the table is emptied before it is full. That of samples is large enough for the time between
// two drains.
func (s *Stacks[K, V, R]) setFilling(spec *ebpf.CollectionSpec) error {
	f := newFilling(spec, "table", nil)
	if f != nil && s.due == nil {
		f.drain, f.kept = s.drainKeys, func() int { return 0 } // rows are kept in any case
		s.table.epochs.filling = f
	}
	return sizeCounts(spec, &s.Plan, "table", s.table.epochs.filling, 0)
}

// sampledEntries returns the size of the table for sampling tools: the number of samples per minute,
// at least 2^12 and at most 2^20. Entries are drained at least every five seconds. A larger table takes longer to
// create and to iterate over.
func sampledEntries(perSecond uint64) uint32 {
	const smallest, largest = 1 << 12, 1 << 20
	return uint32(max(smallest, min(largest, 1<<bits.Len64(60*perSecond))))
}

// idOffsets returns the offsets of the stack IDs in a key.
func idOffsets(t reflect.Type, base uintptr) []uintptr {
	var offsets []uintptr
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Type == reflect.TypeFor[stacktrace.StackID]():
			offsets = append(offsets, base+f.Offset)
		case f.Type.Kind() == reflect.Struct:
			offsets = append(offsets, idOffsets(f.Type, base+f.Offset)...)
		}
	}
	return offsets
}

func (s *Stacks[K, V, R]) Run(ctx context.Context, ses *tool.Session) (err error) {
	if err := s.stackReading.open(ses, s.ringBytes()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stackReading.close()) }()
	ctx, cancel, err := ses.Attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	s.stackReading.begin(ses)
	if err := s.start(ses); err != nil {
		return err
	}
	if perSecond := s.Sampling.PerSecond(); perSecond > 0 && perSecond <= mostSerial {
		defer ses.Serialize()()
	}
	s.limit(ses)
	drains, stop := s.drains(ctx, ses)
	defer stop()
	return s.table.rounds.repeat(ctx, ses, &s.table.epochs, drains, func() error { return s.report(ses) })
}

// mostSerial is the number of samples per second up to which Go code runs on one CPU. At higher rates,
// symbolization can use several.
const mostSerial = 10_000

func (s *Stacks[K, V, R]) ringBytes() int {
	if s.RingBytes > 0 {
		return s.RingBytes
	}
	return ringBytes
}

// limit sets the limit of rows and the interval, whose defaults depend on the output format.
func (s *Stacks[K, V, R]) limit(ses *tool.Session) {
	format := ses.Out.Format()
	if format == output.Text {
		s.table.limitText()
	}
	if s.Every == 0 && ses.Interval == 0 && s.writers()[format] == nil {
		s.table.rounds.Every = flags.Duration(s.Usual)
	}
}

func (s *Stacks[K, V, R]) start(ses *tool.Session) error {
	s.counts, s.sums = map[K]unsafe.Pointer{}, sums{}
	if err := s.table.cols.Settle(ses.Objects); err != nil {
		return err
	}
	if s.Held != nil {
		s.table.begin = time.Now()
		// Entries are read before hooks are detached. While they are detached, releases could be
		// missed whose acquisition was recorded.
		s.table.epochs.last = func() error { return s.Held.each(ses, s.count) }
		return ses.Ready()
	}
	if err := errors.Join(s.table.start(ses), s.due.measure(ses)); err != nil {
		return err
	}
	s.table.epochs.last = func() error { return s.due.measure(ses) }
	return ses.Ready()
}

// drains requests drains of the map, so that a long run does not fill it.
func (s *Stacks[K, V, R]) drains(ctx context.Context, ses *tool.Session) (<-chan func() error, func()) {
	ctx, stop := context.WithCancel(ctx)
	requests := make(chan func() error)
	tick, stopTicks := ticks(drainInterval(s.Sampling.PerSecond()))
	go func() {
		defer stopTicks()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			select {
			case <-ctx.Done():
				return
			case requests <- func() error { return s.cut(ses) }:
			}
		}
	}()
	return requests, stop
}

// cut reads and deletes the counts so far. Held resources are only read for reports.
func (s *Stacks[K, V, R]) cut(ses *tool.Session) error {
	if s.Held != nil {
		return errors.Join(ses.Objects.AwaitGracePeriod(), s.endDrain())
	}
	if err := s.table.epochs.cut(ses); err != nil {
		return err
	}
	return s.drainKeys(ses)
}

// drainKeys moves the counts until the last cut to rows.
func (s *Stacks[K, V, R]) drainKeys(ses *tool.Session) error {
	if err := s.drain(ses); err != nil {
		return err
	}
	s.fold(len(s.counts) > mostUnfolded)
	return errors.Join(s.endDrain(), ses.ReportLost())
}

// mostUnfolded is the maximum number of keys that wait for their stacks. More mean that stacks were lost.
const mostUnfolded = 1 << 16

// fold adds the counts to the rows of their keys, so that a long run does not keep all keys. Keys whose
// stacks are still being read or symbolized wait for these, unless all are to be folded.
func (s *Stacks[K, V, R]) fold(all bool) {
	s.traces.Settle()
	ids := map[stacktrace.StackID]bool{}
	for k, v := range s.counts {
		clear(ids)
		s.addIDs(ids, unsafe.Pointer(&k))
		if s.traces.Cache.HasAll(ids) || all {
			s.table.addTo(s.sums, unsafe.Pointer(&k), v)
			delete(s.counts, k)
		}
	}
}

// count adds v to the counts of a key.
func (s *Stacks[K, V, R]) count(k *K, v *V) {
	if sum := s.counts[*k]; sum != nil {
		s.table.add(sum, unsafe.Pointer(v))
		return
	}
	s.counts[*k] = s.table.clone(unsafe.Pointer(v))
}

// drain adds the counts of the epochs that have ended.
func (s *Stacks[K, V, R]) drain(ses *tool.Session) error {
	if s.Held != nil && ses.Objects.Attached() {
		return s.Held.each(ses, s.count)
	}
	if s.Held != nil {
		return nil
	}
	m, hasEnded := ses.Objects.Maps["table"], s.table.epochs.hasEnded(ses)
	old := probe.NewEntries(s.table.entry)
	err := probe.EachEntry(m, func(e *tableEntry[K], v *V) {
		if !hasEnded(e.Epoch) {
			return
		}
		old.Append(unsafe.Pointer(e))
		s.count(&e.Key, v)
	})
	if err != nil {
		return fmt.Errorf("read counts: %w", err)
	}
	if err := old.Delete(m); err != nil {
		return fmt.Errorf("clear counts: %w", err)
	}
	return nil
}
