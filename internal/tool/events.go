package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/value"
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
	// Headers are what text calls columns, by key, where users know them by other
	// names than the usual.
	Headers map[string]string
	// Widths are those of columns, by key, that differ from the usual.
	Widths map[string]int
	// BufferBytes is the size of the ring buffer, and that of all perf buffers
	// together. It is made a power of two, and no less than a page.
	BufferBytes int
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

	row     *R // the one that columns are bound to
	decoder *layout.Decoder
	cols    columns
	samples uint64
	groups  groups[R]
}

// Iterator is an iterator program.
type Iterator = probe.Iterator

// ErrMore is returned by a row's Decode when the event goes on in a later sample.
var ErrMore = errors.New("event goes on")

type decodable interface{ Decode(tail []byte) error }
type stamped interface{ Stamp() *value.Time }
type owned interface{ Head() *value.Task }

func (e *Events[R]) describe(env *Env, spec *ebpf.CollectionSpec) (*description, error) {
	e.row = &e.Row
	if e.MapEntries == nil {
		e.MapEntries = map[string]uint32{}
	}
	e.BufferBytes = bufferSize(e.BufferBytes)
	e.MapEntries["events"] = uint32(e.BufferBytes)
	e.decoder = layout.NewDecoder(e.row)
	if err := checkEvent(spec, reflect.TypeFor[R]()); err != nil {
		return nil, err
	}
	if _, ok := any(e.row).(stamped); !ok {
		return nil, fmt.Errorf("row %T has no time", e.row)
	}
	cols, err := column.Of(e.row)
	if err != nil {
		return nil, err
	}
	if o, ok := any(e.row).(owned); ok {
		cols = append(cols, taskColumns(o.Head(), env)...)
	}
	for i := range cols {
		if header, ok := e.Headers[cols[i].Key]; ok {
			cols[i].Header = header
		}
		if width, ok := e.Widths[cols[i].Key]; ok {
			cols[i].Width = width
		}
	}
	e.cols = columns{all: cols}
	if e.Count != nil {
		return e.describeCounts(), nil
	}
	return &description{columns: &e.cols, text: e.Columns}, nil
}

// bufferSize is the power of two from n on that a buffer can have.
func bufferSize(n int) int {
	size := os.Getpagesize()
	for size < n && size < 1<<30 {
		size <<= 1
	}
	return size
}

func checkEvent(spec *ebpf.CollectionSpec, row reflect.Type) error {
	var event *btf.Struct
	if err := spec.Types.TypeByName("event", &event); err != nil {
		return fmt.Errorf("find struct event: %w", err)
	}
	return layout.Check(event, layout.Wire(row))
}

func (e *Events[R]) kind() string { return kindEvent }

// run makes the reader before anything is attached: perf buffers are there only from
// then on.
func (e *Events[R]) run(ctx context.Context, s *session) error {
	reader, err := ring.New(s.objects.Maps["events"], bufferSize(e.BufferBytes/runtime.NumCPU()))
	if err != nil {
		return fmt.Errorf("read events: %w", probe.Classify(err))
	}
	defer reader.Close()
	ctx, cancel, err := s.attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := e.iterate(s, e.Before); err != nil {
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
	if err := e.iterate(s, e.After); err != nil {
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
		if err := e.show(s, sample); err != nil {
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

// show turns one sample into a row.
func (e *Events[R]) show(s *session, sample []byte) error {
	tail, err := e.decoder.Decode(sample)
	if err != nil {
		return err
	}
	if d, ok := any(e.row).(decodable); ok {
		if err := d.Decode(tail); errors.Is(err, ErrMore) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
	}
	if err := s.clock.wall(any(e.row).(stamped).Stamp()); err != nil {
		return err
	}
	if e.Keep != nil && !e.Keep(e.row) {
		return nil
	}
	if !s.wanted(&e.cols) {
		return nil
	}
	s.events++
	if e.Count != nil {
		e.groups.add(e.row, e.cols.shown)
		return nil
	}
	s.shown++
	return s.out.Row(kindEvent)
}

// prepare loads and attaches iterators, as it takes rights that are gone when they run.
func (s *session) prepare(programs []Iterator) error {
	for _, it := range programs {
		if err := s.objects.Prepare(it); err != nil {
			return err
		}
	}
	return nil
}

// iterate runs iterator programs and shows the events that they write.
func (e *Events[R]) iterate(s *session, programs []Iterator) error {
	for _, it := range programs {
		if err := s.objects.Iterate(it, e.decoder.Size(), func(sample []byte) error {
			return e.show(s, sample)
		}); err != nil {
			return err
		}
	}
	return s.out.Flush()
}
