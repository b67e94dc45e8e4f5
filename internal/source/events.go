// Package source has the sources of rows: Events, List, Hists, Table and Stacks. A tool creates one
// of them from its options.
package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
)

// Events is a source of rows: programs send struct event through the map "events", and each becomes
// an R. The first field of R is an embedded struct that mirrors struct event; it has the time of
// the row, usually in an embedded [value.Task].
//
// If *R has a method Decode(tail []byte) error, it is called for each event with the bytes after
// struct event. It sets the fields of R that follow the first one. It can return ErrMore. If *R also
// has a method Next(end bool) bool, that shows rows which Decode has held back: it is called when the
// buffer is empty, and at the end of the run, until it returns false.
type Events[R any] struct {
	tool.Plan
	// Columns lists the keys of the columns in text output.
	Columns []string
	// Extra lists the keys of extra columns that JSON and CSV contain in this run, because a flag
	// asks for them.
	Extra []string
	// Headers maps keys of columns to titles in text that differ from the default, such as those of
	// peers.
	Headers map[string]string
	// Widths maps keys of columns to widths in text that differ from the default.
	Widths map[string]int
	// BufferBytes is the size of the ring buffer, or of all perf buffers together, rounded up to a
	// power of two of pages.
	BufferBytes int
	// Delay, if set, replaces the time for which events wait in the ring buffer, if events arrive
	// continuously: [ring.Delay]. Each wake-up of the reader costs as much as dozens of rows, so a longer
	// time suits events that are never as frequent as to fill the buffer meanwhile.
	Delay time.Duration
	// UserStacks is set if events contain user stacks (user_stack_read). It has the options for
	// unwinding.
	UserStacks *stacktrace.UserStacks
	// Row is the initial value of the row. Decode can use its fields.
	Row R
	// Keep, if set, reports whether a decoded row is shown.
	Keep func(*R) bool
	// Once, if set, returns the key of a row that passes --filter. Rows with a key that was shown
	// before are not shown.
	Once func(*R) any
	// Count, if set, lists keys of columns. Rows are then not shown but counted, grouped by the
	// shown columns: these and "count", unless --columns selects others. Fields that Decode sets
	// must not point into the tail.
	Count []string
	// Before and After list iterator programs whose events are also rows. Before runs after all
	// hooks are attached, ahead of "ready"; After runs after all hooks are detached.
	Before, After []tool.Iterator
	// Sink, if set, receives the rows that pass the filters, instead of the output.
	Sink Sink
	// End, if set, is called at the end of the run, after the last row.
	End func() error

	events events
}

// A Sink writes rows elsewhere than to the output, such as to a file in the format of another program.
type Sink interface {
	// Open is called before programs are attached: later the run has fewer capabilities.
	Open(*tool.Session) error
	// Write writes the current row.
	Write() error
	// Flush is called when no further row is available for now, and at the end.
	Flush() error
	// Close is called at the end, with the number of lost events.
	Close(lost uint64) error
}

// errNoBuffer is returned for a definition without BufferBytes.
var errNoBuffer = errors.New("the definition of the tool has no BufferBytes")

func (e *Events[R]) Kind() string { return output.KindEvent }

func (e *Events[R]) Describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	if e.BufferBytes == 0 {
		return nil, errNoBuffer
	}
	e.events = events{
		plan: &e.Plan, columns: e.Columns, extra: e.Extra, count: e.Count, bufferBytes: bufferSize(e.BufferBytes), delay: e.Delay,
		userStacks: e.UserStacks, before: e.Before, after: e.After, end: e.End,
		rows: rows{row: &e.Row, keep: kept(e.Keep, &e.Row), once: keyed(e.Once, &e.Row), sink: e.Sink, headers: e.Headers, widths: e.Widths},
	}
	return e.events.describe(env, spec)
}

// Tail returns the maximum size of the tail of an event, as defined in the object. It is known when
// Resolve is called.
func (e *Events[R]) Tail() int { return e.events.rows.tail }

// Run creates the reader before hooks are attached, because perf buffers do not exist before.
func (e *Events[R]) Run(ctx context.Context, s *tool.Session) error { return e.events.run(ctx, s) }

// events is the part of Events that does not depend on the type of its rows, so that the binary
// contains it only once.
type events struct {
	plan           *tool.Plan
	columns, extra []string
	count          []string
	bufferBytes    int
	delay          time.Duration
	userStacks     *stacktrace.UserStacks
	before, after  []tool.Iterator
	end            func() error

	rows    rows
	samples uint64
	groups  groups
	traces  *stacktrace.Traces // nil without userStacks
}

func (e *events) describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	if e.plan.MapEntries == nil {
		e.plan.MapEntries = map[string]uint32{}
	}
	e.plan.MapEntries["events"] = uint32(e.bufferBytes)
	e.setDelay()
	if err := e.describeStacks(env, spec); err != nil {
		return nil, err
	}
	d, err := e.rows.Describe(env, spec, e.columns)
	if err == nil && e.rows.sink != nil {
		d.Blocks = true // the output has no line of column names
		e.plan.Finish = e.rows.sink.Close
	}
	if e.extra != nil {
		e.rows.cols.Machine = append(column.Standard(e.rows.cols.All), e.extra...)
	}
	if err == nil && e.count != nil {
		e.rows.count = &e.groups
		return e.describeCounts(), nil
	}
	return d, err
}

// setDelay sets the delay of the programs.
func (e *events) setDelay() {
	if e.delay == 0 {
		e.delay = ring.Delay
		return
	}
	if e.plan.Variables == nil {
		e.plan.Variables = map[string]any{}
	}
	e.plan.Variables["event_wakeup_ns"] = uint64(e.delay)
}

func (e *events) describeStacks(env *tool.Env, spec *ebpf.CollectionSpec) (err error) {
	if e.userStacks == nil {
		e.plan.Cut = append(e.plan.Cut, "user_stack_read")
		return stacktrace.Setup(spec, e.plan.MapEntries, false)
	}
	if e.traces, err = stacktrace.New(spec, &stacktrace.Frames{Address: true, Depth: stacktrace.MaxDepth}, e.userStacks, env.Machine()); err != nil {
		return err
	}
	env.Traces = e.traces
	return stacktrace.Setup(spec, e.plan.MapEntries, e.userStacks.ByTables())
}

// bufferSize returns the smallest power of two of at least n bytes and one page.
func bufferSize(n int) int {
	size := os.Getpagesize()
	for size < n && size < 1<<30 {
		size <<= 1
	}
	return size
}

func (e *events) run(ctx context.Context, s *tool.Session) (err error) {
	if e.rows.sink != nil {
		if err := e.rows.sink.Open(s); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.rows.sink.Flush()) }()
	}
	reader, err := ring.New(s.Objects.Maps["events"], e.bufferBytes, e.delay)
	if err != nil {
		return fmt.Errorf("read events: %w", probe.Classify(err))
	}
	defer reader.Close()
	if e.traces != nil {
		e.traces.Open(s.Objects, s.PID, e.userStacks.ByTables(), s.Notify)
		defer func() { err = errors.Join(err, e.traces.Close()) }()
	}
	ctx, cancel, err := s.Attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := e.rows.cols.Settle(s.Objects); err != nil {
		return err
	}
	if err := e.rows.iterate(ctx, s, e.before); err != nil {
		return err
	}
	if err := s.Prepare(e.after); err != nil {
		return err
	}
	if err := s.Ready(); err != nil {
		return err
	}
	restore := func() {}
	if e.traces == nil { // otherwise stacks are symbolized at the same time
		restore = s.Serialize()
	}
	defer restore()
	defer context.AfterFunc(ctx, func() {
		restore()
		// No new events are sent after this. Those in the buffer are still shown.
		s.Objects.Detach()
		reader.Stop()
	})()
	if err := e.read(ctx, s, reader); err != nil {
		return err
	}
	if err := e.rows.showDelayed(s, true); err != nil {
		return err
	}
	if err := e.rows.iterate(context.WithoutCancel(ctx), s, e.after); err != nil {
		return err
	}
	if e.end != nil {
		if err := e.end(); err != nil {
			return err
		}
	}
	return e.showCounts(s)
}

func (e *events) read(ctx context.Context, s *tool.Session, reader ring.Reader) error {
	for !s.Enough() {
		sample, err := reader.Read()
		switch {
		case errors.Is(err, ring.ErrIdle):
			if err := errors.Join(e.rows.showDelayed(s, false), e.rows.flush(s), s.ReportLost()); err != nil {
				return err
			}
			continue
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		if err := e.rows.show(s, sample); err != nil {
			return err
		}
		// At a high rate of events the reader may never be idle.
		if e.samples++; e.samples%4096 == 0 {
			if err := s.ReportLost(); err != nil {
				return err
			}
		}
	}
	return nil
}
