package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/layout"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// ErrMore is returned by Decode of a row if the event continues in a later sample.
var ErrMore = errors.New("event continues in a later sample")

type decodable interface{ Decode(tail []byte) error }

// delaying is a row that Decode can hold back (ErrMore). Next fills it with the next one that is due,
// or with any one if the run ends.
type delaying interface{ Next(end bool) bool }
type stamped interface{ Stamp() *value.Time }
type owned interface{ Head() *value.Task }

// rows turns samples, a struct event each, into rows. It does not depend on the type of the rows, so
// that the binary contains it only once.
type rows struct {
	row     any         // pointer to the row; columns are bound to it
	keep    func() bool // reports whether the row is shown, or nil
	once    func() any  // returns the key of a row that is shown only once, or nil
	seen    map[any]struct{}
	headers map[string]string
	widths  map[string]int
	decoder *layout.Decoder
	tail    int // maximum size of the tail of an event
	cols    tool.Columns
	times   []*value.Time // fields that programs set
	count   *groups       // if set, rows are counted instead of shown
	sink    Sink          // if set, rows are written to it instead of the output
}

// kept returns keep for this row, or nil if it is nil.
func kept[R any](keep func(*R) bool, row *R) func() bool {
	if keep == nil {
		return nil
	}
	return func() bool { return keep(row) }
}

// keyed returns the function of the key for this row, or nil if it is nil.
func keyed[R any](key func(*R) any, row *R) func() any {
	if key == nil {
		return nil
	}
	return func() any { return key(row) }
}

// maxSeen is the number of keys that are remembered. If there are more, rows are shown again.
const maxSeen = 1 << 16

// isRepeated reports whether a row with the same key was shown before.
func (r *rows) isRepeated() bool {
	if r.once == nil {
		return false
	}
	key := r.once()
	if _, ok := r.seen[key]; ok {
		return true
	}
	if r.seen == nil || len(r.seen) >= maxSeen {
		r.seen = map[any]struct{}{}
	}
	r.seen[key] = struct{}{}
	return false
}

// Describe binds columns to the row. text lists the keys of the columns in text output.
func (r *rows) Describe(env *tool.Env, spec *ebpf.CollectionSpec, text []string) (*tool.Description, error) {
	r.decoder = layout.NewDecoder(r.row)
	tail, err := checkEvent(spec, reflect.TypeOf(r.row).Elem())
	if err != nil {
		return nil, err
	}
	r.tail = tail
	if _, ok := r.row.(stamped); !ok {
		return nil, fmt.Errorf("row %T has no time", r.row)
	}
	if e, ok := r.row.(elapsing); ok {
		if err := e.begin(); err != nil {
			return nil, err
		}
	}
	wire := reflect.ValueOf(r.row).Elem()
	if layout.Wire(wire.Type()) != wire.Type() {
		wire = wire.Field(0)
	}
	r.times = times(wire)
	return r.bind(env, text)
}

// describeOwn binds columns to a row that user space fills, except its time.
func (r *rows) describeOwn(env *tool.Env, text []string) (*tool.Description, error) {
	row, ok := r.row.(stamped)
	if !ok {
		return nil, fmt.Errorf("row %T has no time", r.row)
	}
	r.times = []*value.Time{row.Stamp()}
	return r.bind(env, text)
}

// bind creates the columns. text lists the keys of those in text output.
func (r *rows) bind(env *tool.Env, text []string) (*tool.Description, error) {
	cols, err := column.Of(r.row)
	if err != nil {
		return nil, err
	}
	if o, ok := r.row.(owned); ok {
		cols = append(cols, tool.TaskColumns(o.Head(), env)...)
	}
	for i := range cols {
		if header, ok := r.headers[cols[i].Key]; ok {
			cols[i].Header = header
		}
		if width, ok := r.widths[cols[i].Key]; ok {
			cols[i].Width = width
		}
	}
	r.cols = tool.Columns{All: cols}
	return &tool.Description{Columns: &r.cols, Text: text}, nil
}

// checkEvent compares struct event with the row, and returns the maximum size of its tail.
func checkEvent(spec *ebpf.CollectionSpec, row reflect.Type) (tail int, err error) {
	var event *btf.Struct
	if err := spec.Types.TypeByName("event", &event); err != nil {
		return 0, fmt.Errorf("find struct event: %w", err)
	}
	wire := layout.Wire(row)
	return layout.Tail(event, wire), layout.Check(event, wire)
}

// times returns the fields of type value.Time of a struct that programs fill. They contain
// CLOCK_BOOTTIME until they are converted to wall time.
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

// show converts a sample to a row, and writes it.
func (r *rows) show(s *tool.Session, sample []byte) error {
	tail, err := r.decoder.Decode(sample)
	if err != nil {
		return err
	}
	if d, ok := r.row.(decodable); ok {
		if err := d.Decode(tail); errors.Is(err, ErrMore) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
	}
	return r.write(s)
}

// showDelayed writes the rows that were held back and are due.
func (r *rows) showDelayed(s *tool.Session, end bool) error {
	d, ok := r.row.(delaying)
	for ok && !s.Enough() && d.Next(end) {
		if err := r.write(s); err != nil {
			return err
		}
	}
	return nil
}

// write writes the row if it passes the filters.
func (r *rows) write(s *tool.Session) error {
	if e, ok := r.row.(elapsing); ok {
		e.set(*r.row.(stamped).Stamp())
	}
	for _, t := range r.times {
		if err := s.Wall(t); err != nil {
			return err
		}
	}
	if r.keep != nil && !r.keep() {
		s.Excluded++
		return nil
	}
	if !s.Wanted(&r.cols) {
		return nil
	}
	if r.isRepeated() {
		s.Excluded++
		return nil
	}
	s.Events++
	if r.count != nil {
		r.count.add(r.row, r.cols.Shown)
		return nil
	}
	s.Shown++
	if r.sink != nil {
		return r.sink.Write()
	}
	if t, ok := r.row.(stamped); ok {
		s.Out.Begin(*t.Stamp())
	}
	return s.Out.Row(output.KindEvent)
}

// flush writes what is buffered.
func (r *rows) flush(s *tool.Session) error {
	if r.sink == nil {
		return s.Out.Flush()
	}
	return r.sink.Flush()
}

// errEnough stops an iterator program early.
var errEnough = errors.New("enough")

// iterate runs iterator programs and shows the rows that they send, until the context is done or
// --limit is reached.
func (r *rows) iterate(ctx context.Context, s *tool.Session, programs []tool.Iterator) error {
	for _, it := range programs {
		err := s.Objects.Iterate(it, func(sample []byte) error {
			if ctx.Err() != nil || s.Enough() {
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
	return s.Out.Flush()
}

// read shows the rows that user space reads, until the context is done or --limit is reached.
func (r *rows) read(ctx context.Context, s *tool.Session, each func(show func() error) error) error {
	err := each(func() error {
		if ctx.Err() != nil || s.Enough() {
			return errEnough
		}
		now, err := system.BootNow()
		if err != nil {
			return err
		}
		*r.row.(stamped).Stamp() = value.Time(now)
		return r.write(s)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, s.Out.Flush()) // also after an error: the rows until then are valid
}
