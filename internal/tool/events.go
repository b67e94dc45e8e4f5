package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/ring"
)

// Events is a stream of rows: the programs send struct event through the map
// "events", each becomes an R. R's first field is the Go type of struct event,
// embedded; it has the row's time, by an embedded [value.Task] or otherwise.
//
// If *R has a method Decode(tail []byte) error, it is given what was sent behind
// the fixed part, and fills the fields that follow from it. It may return ErrMore.
type Events[R any] struct {
	Plan
	// Columns are the keys of the columns that text shows.
	Columns []string
	// Extra are the keys of extra columns that JSON and CSV show too, as this run was asked
	// for them by a flag.
	Extra []string
	// Headers are what text calls columns, by key, where users know them by other
	// names than the usual.
	Headers map[string]string
	// Widths are those of columns, by key, that differ from the usual.
	Widths map[string]int
	// BufferBytes is the size of the ring buffer, and that of all perf buffers
	// together. It is made a power of two, and no less than a page.
	BufferBytes int
	// UserStacks, if set, tells that events have stacks of processes (user_stack_read), and
	// how they are walked.
	UserStacks *UserStacks
	// Row is what every row begins as: a place for what Decode needs to know.
	Row R
	// Keep, if set, is asked whether a decoded row is wanted.
	Keep func(*R) bool
	// Count, if set, has the keys of columns: then rows are not shown, but counted by the
	// columns that are shown, which are these and "count" if the user names no others. What
	// Decode fills must not point into the tail.
	Count []string
	// Before and After are iterator programs whose events are rows too: Before run when
	// all is attached, ahead of "ready", and After when nothing is any more.
	Before, After []Iterator

	rows    rows[R]
	samples uint64
	groups  groups[R]
	traces  *Traces // nil without UserStacks
}

func (e *Events[R]) describe(env *Env, spec *ebpf.CollectionSpec) (*description, error) {
	if e.MapEntries == nil {
		e.MapEntries = map[string]uint32{}
	}
	e.BufferBytes = bufferSize(e.BufferBytes)
	e.MapEntries["events"] = uint32(e.BufferBytes)
	if err := e.describeStacks(env, spec); err != nil {
		return nil, err
	}
	e.rows = rows[R]{row: &e.Row, keep: e.Keep, headers: e.Headers, widths: e.Widths}
	d, err := e.rows.describe(env, spec, e.Columns)
	if e.Extra != nil {
		e.rows.cols.machine = append(column.Standard(e.rows.cols.all), e.Extra...)
	}
	if err == nil && e.Count != nil {
		e.rows.count = &e.groups
		return e.describeCounts(), nil
	}
	return d, err
}

func (e *Events[R]) describeStacks(env *Env, spec *ebpf.CollectionSpec) (err error) {
	if e.UserStacks == nil {
		probe.Cut(spec, "user_stack_read")
		return setUnwinding(spec, &e.Plan, false)
	}
	if err := e.UserStacks.check(); err != nil {
		return flags.Usage(err)
	}
	if err := checkStackHead(spec); err != nil {
		return err
	}
	if e.traces, err = newTraces(&Frames{Address: true, Depth: stackDepth}, e.UserStacks, env); err != nil {
		return err
	}
	env.traces = e.traces
	return setUnwinding(spec, &e.Plan, e.UserStacks.byTables())
}

// bufferSize is the power of two from n on that a buffer can have.
func bufferSize(n int) int {
	size := os.Getpagesize()
	for size < n && size < 1<<30 {
		size <<= 1
	}
	return size
}

func (e *Events[R]) kind() string { return kindEvent }

// run makes the reader before anything is attached: perf buffers are there only from
// then on.
func (e *Events[R]) run(ctx context.Context, s *session) (err error) {
	reader, err := ring.New(s.objects.Maps["events"], bufferSize(e.BufferBytes/runtime.NumCPU()))
	if err != nil {
		return fmt.Errorf("read events: %w", probe.Classify(err))
	}
	defer reader.Close()
	if e.traces != nil {
		e.traces.open(s, e.UserStacks.byTables())
		defer func() { err = errors.Join(err, e.traces.close()) }()
	}
	ctx, cancel, err := s.attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if e.traces != nil {
		e.traces.unwinding.await()
	}
	if err := e.rows.iterate(ctx, s, e.Before); err != nil {
		return err
	}
	if err := s.prepare(e.After); err != nil {
		return err
	}
	if err := s.ready(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		// Nothing new comes from here on; what is there is still shown.
		s.objects.Detach()
		reader.Stop()
	})()
	if err := e.read(ctx, s, reader); err != nil {
		return err
	}
	if err := e.rows.iterate(context.WithoutCancel(ctx), s, e.After); err != nil {
		return err
	}
	return e.showCounts(s)
}

func (e *Events[R]) read(ctx context.Context, s *session, reader ring.Reader) error {
	for !s.enough() {
		sample, err := reader.Read()
		switch {
		case errors.Is(err, ring.ErrIdle):
			if err := errors.Join(s.out.Flush(), s.sayLost()); err != nil {
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
		// A storm may leave no idle moment to tell of losses in.
		if e.samples++; e.samples%4096 == 0 {
			if err := s.sayLost(); err != nil {
				return err
			}
		}
	}
	return nil
}
