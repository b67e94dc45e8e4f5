package tool

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/value"
)

// ErrMore is returned by a row's Decode when the event goes on in a later sample.
var ErrMore = errors.New("event goes on")

// Iterator is an iterator program.
type Iterator = probe.Iterator

type decodable interface{ Decode(tail []byte) error }
type stamped interface{ Stamp() *value.Time }
type owned interface{ Head() *value.Task }

// rows shows what programs send, a struct event each, as rows of type R.
type rows[R any] struct {
	row     *R // the one that columns are bound to
	keep    func(*R) bool
	headers map[string]string
	widths  map[string]int
	decoder *layout.Decoder
	cols    columns
	times   []*value.Time // those that the programs fill
	count   *groups[R]    // rows are counted there, if set
}

// describe binds columns to the row; text has the keys of those that text shows.
func (r *rows[R]) describe(env *Env, spec *ebpf.CollectionSpec, text []string) (*description, error) {
	r.decoder = layout.NewDecoder(r.row)
	if err := checkEvent(spec, reflect.TypeFor[R]()); err != nil {
		return nil, err
	}
	if _, ok := any(r.row).(stamped); !ok {
		return nil, fmt.Errorf("row %T has no time", r.row)
	}
	wire := reflect.ValueOf(r.row).Elem()
	if layout.Wire(wire.Type()) != wire.Type() {
		wire = wire.Field(0)
	}
	r.times = times(wire)
	cols, err := column.Of(r.row)
	if err != nil {
		return nil, err
	}
	if o, ok := any(r.row).(owned); ok {
		cols = append(cols, taskColumns(o.Head(), env)...)
	}
	for i := range cols {
		if header, ok := r.headers[cols[i].Key]; ok {
			cols[i].Header = header
		}
		if width, ok := r.widths[cols[i].Key]; ok {
			cols[i].Width = width
		}
	}
	r.cols = columns{all: cols}
	return &description{columns: &r.cols, text: text}, nil
}

func checkEvent(spec *ebpf.CollectionSpec, row reflect.Type) error {
	var event *btf.Struct
	if err := spec.Types.TypeByName("event", &event); err != nil {
		return fmt.Errorf("find struct event: %w", err)
	}
	return layout.Check(event, layout.Wire(row))
}

// times are the moments in a struct that programs fill: the boot clock's until they are
// made wall time.
func times(v reflect.Value) []*value.Time {
	if t, ok := reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Interface().(*value.Time); ok {
		return []*value.Time{t}
	}
	var all []*value.Time
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			all = append(all, times(v.Field(i))...)
		}
	}
	return all
}

// show turns one sample into a row.
func (r *rows[R]) show(s *session, sample []byte) error {
	tail, err := r.decoder.Decode(sample)
	if err != nil {
		return err
	}
	if d, ok := any(r.row).(decodable); ok {
		if err := d.Decode(tail); errors.Is(err, ErrMore) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
	}
	for _, t := range r.times {
		if err := s.clock.wall(t); err != nil {
			return err
		}
	}
	if r.keep != nil && !r.keep(r.row) {
		return nil
	}
	if !s.wanted(&r.cols) {
		return nil
	}
	s.events++
	if r.count != nil {
		r.count.add(r.row, r.cols.shown)
		return nil
	}
	s.shown++
	return s.out.Row(kindEvent)
}

// errEnough ends an iterator before it is through.
var errEnough = errors.New("enough")

// iterate runs iterator programs and shows the rows that they send, until the context is
// done or there are enough.
func (r *rows[R]) iterate(ctx context.Context, s *session, programs []Iterator) error {
	for _, it := range programs {
		err := s.objects.Iterate(it, func(sample []byte) error {
			if ctx.Err() != nil || s.enough() {
				return errEnough
			}
			return r.show(s, sample)
		})
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// prepare loads and attaches iterators, which takes more rights than to run them.
func (s *session) prepare(programs []Iterator) error {
	for _, it := range programs {
		if err := s.objects.Prepare(it); err != nil {
			return err
		}
	}
	return nil
}
