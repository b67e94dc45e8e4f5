package tool

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

// Stacks are what programs count by stacks: a table (table.bpf.h) whose keys have numbers
// of stacks, of type StackID in K, and the stacks themselves, which come as they are seen
// first (stacks.bpf.h). Rows that are equal once their functions are named are added up.
type Stacks[K comparable, V any, R comparable] struct {
	Plan
	StackOptions
	// UserStacks are left out by tools that take no stacks of processes. KernelOnly tells
	// that this run takes none: nothing is made ready for them.
	UserStacks
	KernelOnly bool
	// Sort is the key of the column that is the weight of a row.
	Sort string
	// Off are the keys of columns that no row of this run has.
	Off []string
	// Unit is what the weights are, Period the ns between two samples, if they are that.
	Unit   flame.Unit
	Period uint64
	// Label makes the row of a key, whose stacks are to be had from the traces.
	Label func(*K, *Traces) R
	// Fill fills the other columns, Weight is the row's weight then.
	Fill   func(*R, *V)
	Weight func(*R) uint64
	// Parts are what the row shows in folded stacks, the outermost first; text shows them
	// from the last to the first.
	Parts func(*R) []Part
	// RingBytes is how much room there is for new stacks; 4 MB if it is 0.
	RingBytes int
	// Held, if set, is a *Held: what is counted is what it holds, and there is no table.
	Held holdings[K, V]
	// Usual is the time between reports where the user gives none, but for documents: these
	// are one. Count, if set, is the number of reports.
	Usual time.Duration
	Count uint64
	// Rows, if set, is how many rows there are at the most, the first ones by Sort, which
	// may be one of SortNames for a column. TextRows is for text, where Rows is 0.
	Rows, TextRows uint64
	SortNames      map[string]string
	// Heading, if set, is what text says above a report of so many rows. Caption, if set,
	// is what it says above the stacks of a row, in place of the weight below them.
	Heading func(rows int) string
	Caption func(*R) string

	table Table[K, V, R]
	stackReading
	counts map[K]*V // since the last report
}

// Part is a part of what a row shows: a stack, or a line of text.
type Part struct {
	// Trace is the stack, shown upside down if Reverse is set.
	Trace   value.Trace
	Reverse bool
	// Label is the line, where there is no trace; text puts Title before it and More
	// behind it.
	Label, Title, More string
	// Mark tells that the label is a line between two stacks.
	Mark bool
}

// ringBytes is some 10,000 stacks.
const ringBytes = 4 << 20

// drainEvery is how often the counts are taken out of the kernel's map.
const drainEvery = time.Second

func (s *Stacks[K, V, R]) kind() string { return kindRow }

// plan adds what the names of functions take.
func (s *Stacks[K, V, R]) plan() *Plan {
	s.Keep = namesKeep()
	if s.Folded {
		s.Output = string(folded)
	}
	return &s.Plan
}

func (s *Stacks[K, V, R]) describe(env *Env, spec *ebpf.CollectionSpec) (*description, error) {
	if err := errors.Join(s.StackOptions.check(), s.UserStacks.check()); err != nil {
		return nil, flags.Usage(err)
	}
	s.unwind = s.byTables() && !s.KernelOnly
	if err := s.stackReading.describe(spec, &s.Plan, reflect.TypeFor[K](), s.ringBytes()); err != nil {
		return nil, err
	}
	var err error
	if s.traces, err = newTraces(&s.Frames, &s.UserStacks, env); err != nil {
		return nil, err
	}
	if perSecond := s.Sampling.PerSecond(); perSecond > 0 {
		s.MapEntries["table"] = sampledEntries(perSecond)
	}
	s.table.Rounds = Rounds{s.Every, s.Count}
	s.table.Ranking = Ranking{s.Sort, s.Rows}
	s.table.SortNames = s.SortNames
	s.table.TextRows = s.TextRows
	s.table.Off = s.Off
	s.table.Label = func(k *K, _ *V) R { return s.Label(k, s.traces) }
	s.table.Fill = func(r *R, v *V, _ time.Duration) { s.Fill(r, v) }
	if s.Held == nil {
		return s.table.describe(env, spec)
	}
	if err := s.Held.check(spec); err != nil {
		return nil, err
	}
	return s.table.bind(env)
}

// sampledEntries is room for the samples of a minute, if each has an entry of its own: they
// are taken out once a second. All of the map is gone through then, and set up at the start.
func sampledEntries(perSecond uint64) uint32 {
	const least, most = 1 << 12, 1 << 20
	return uint32(max(least, min(most, 1<<bits.Len64(60*perSecond))))
}

func checkStackHead(spec *ebpf.CollectionSpec) error {
	var head *btf.Struct
	if err := spec.Types.TypeByName("stack_head", &head); err != nil {
		return fmt.Errorf("find struct stack_head: %w", err)
	}
	return layout.Check(head, reflect.TypeFor[stackHead]())
}

// idOffsets lists where a key has numbers of stacks.
func idOffsets(t reflect.Type, base uintptr) []uintptr {
	var offsets []uintptr
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Type == reflect.TypeFor[StackID]():
			offsets = append(offsets, base+f.Offset)
		case f.Type.Kind() == reflect.Struct:
			offsets = append(offsets, idOffsets(f.Type, base+f.Offset)...)
		}
	}
	return offsets
}

func (s *Stacks[K, V, R]) run(ctx context.Context, ses *session) (err error) {
	if err := s.stackReading.open(ses, s.ringBytes()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stackReading.close()) }()
	ctx, cancel, err := ses.attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	s.stackReading.begin()
	if err := s.start(ses); err != nil {
		return err
	}
	s.limit(ses)
	drains, stop := s.drains(ctx, ses)
	defer stop()
	return s.table.repeat(ctx, ses, &s.table.epochs, drains, func() error { return s.report(ses) })
}

func (s *Stacks[K, V, R]) ringBytes() int {
	if s.RingBytes > 0 {
		return s.RingBytes
	}
	return ringBytes
}

// limit sets what depends on the form of the output.
func (s *Stacks[K, V, R]) limit(ses *session) {
	format := ses.out.Format()
	if format == output.Text {
		s.table.limitText()
	}
	if s.Every == 0 && s.writers()[format] == nil {
		s.table.Every = flags.Duration(s.Usual)
	}
}

func (s *Stacks[K, V, R]) start(ses *session) error {
	s.counts = map[K]*V{}
	if err := s.table.cols.settle(ses.objects); err != nil {
		return err
	}
	if s.Held != nil {
		s.table.begin = time.Now()
		// To detach takes time, in which a free is missed where an allocation is not.
		s.table.epochs.last = func() error { return s.Held.each(ses, s.count) }
		return ses.ready()
	}
	if err := s.table.start(ses); err != nil {
		return err
	}
	return ses.ready()
}

// drains asks once a second for the counts to be taken out of the map, so that a long run
// does not fill it.
func (s *Stacks[K, V, R]) drains(ctx context.Context, ses *session) (<-chan func() error, func()) {
	if s.Held != nil {
		return nil, func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	requests := make(chan func() error)
	tick, stopTicks := ticks(drainEvery)
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

// cut takes out what was counted until now.
func (s *Stacks[K, V, R]) cut(ses *session) error {
	if err := s.table.epochs.cut(ses); err != nil {
		return err
	}
	return errors.Join(s.drain(ses), ses.sayLost())
}

// count adds to what a key has.
func (s *Stacks[K, V, R]) count(k *K, v *V) {
	if sum := s.counts[*k]; sum != nil {
		s.table.add(sum, v)
		return
	}
	first := *v
	s.counts[*k] = &first
}

// drain adds the epochs that are over to the counts.
func (s *Stacks[K, V, R]) drain(ses *session) error {
	if s.Held != nil && ses.objects.Attached() {
		return s.Held.each(ses, s.count)
	}
	if s.Held != nil {
		return nil
	}
	m, over := ses.objects.Maps["table"], s.table.epochs.over(ses)
	var old []tableEntry[K]
	err := eachEntry(m, func(e *tableEntry[K], v *V) {
		if !over(e.Epoch) {
			return
		}
		old = append(old, *e)
		s.count(&e.Key, v)
	})
	if err != nil {
		return fmt.Errorf("read counts: %w", err)
	}
	if err := deleteAll(m, old); err != nil {
		return fmt.Errorf("clear counts: %w", err)
	}
	return nil
}
