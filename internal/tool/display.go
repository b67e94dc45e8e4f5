package tool

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/screen"
)

// display is a table on a terminal.
type display struct {
	*screen.Screen
	stop   context.CancelFunc
	paused bool
}

// openDisplay takes the terminal if output goes to one that can be drawn on, and returns
// nil if not: then the table is plain text.
func (s *session) openDisplay(stop context.CancelFunc) (*display, error) {
	out, ok := s.terminal.(*os.File)
	if !ok || s.out.Format() != output.Text {
		return nil, nil
	}
	scr, err := screen.Open(out)
	if errors.Is(err, screen.ErrNone) {
		if s.common.Verbose {
			fmt.Fprintf(s.errOut, "%s: %v\n", s.tool.Name, err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.errOut.held = true
	return &display{Screen: scr, stop: stop}, nil
}

// requests turns keys into calls of handle, until the context is done.
func (d *display) requests(ctx context.Context, handle func(screen.Key) error) <-chan func() error {
	requests := make(chan func() error)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case key := <-d.Keys():
				select {
				case <-ctx.Done():
					return
				case requests <- func() error { return handle(key) }:
				}
			}
		}
	}()
	return requests
}

// show repeats the table on the terminal until the user has enough. The last that was
// seen is left there as text.
func (t *Table[K, V, R]) show(ctx context.Context, s *session, d *display) error {
	defer s.errOut.release()
	defer d.Close()
	if err := s.ready(); err != nil {
		return err
	}
	s.errOut.last = "" // that it is ready can be seen
	t.draw(s, d)
	keys := d.requests(ctx, func(k screen.Key) error { return t.handle(s, d, k) })
	err := t.repeat(ctx, s, &t.epochs, keys, func() error { return t.refresh(s, d) })
	d.Close()
	t.limitText()
	return errors.Join(err, t.write(s))
}

// refresh draws the interval that is over; that of a pause, and the rest that there is
// at the end, nobody sees.
func (t *Table[K, V, R]) refresh(s *session, d *display) error {
	if d.paused || !s.objects.Attached() {
		return t.forget(s)
	}
	return t.report(s, func(s *session) error {
		t.draw(s, d)
		return nil
	})
}

func (t *Table[K, V, R]) handle(s *session, d *display, key screen.Key) error {
	switch key {
	case screen.Quit:
		d.stop()
		return nil
	case screen.Pause:
		d.paused = !d.paused
	case screen.Left:
		t.sortNext(-1)
	case screen.Right:
		t.sortNext(+1)
	case screen.Reverse:
		t.order.Least = !t.order.Least
	default:
		return d.Handle(key)
	}
	t.sort(s)
	t.draw(s, d)
	return nil
}

// sortNext sorts by the column that is shown beside the one that is sorted by.
func (t *Table[K, V, R]) sortNext(step int) {
	n := len(t.cols.shown)
	i := (t.sorted() + step + n) % n
	if t.sorted() < 0 {
		i = 0
	}
	_ = t.sortBy(t.cols.shown[i].Key) // it is there
}

// sorted is the number of the shown column that is sorted by, or -1.
func (t *Table[K, V, R]) sorted() int {
	for i, c := range t.cols.shown {
		if c.Key == t.order.Column.Key {
			return i
		}
	}
	return -1
}

func (t *Table[K, V, R]) draw(s *session, d *display) {
	f := screen.Frame{
		Title: s.tool.Name + "  " + t.title(), Header: s.out.Headers(), Marked: t.sorted(), Foot: screen.Help,
	}
	if d.paused {
		f.Title += "  PAUSED"
	}
	if s.errOut.last != "" {
		f.Foot = s.errOut.last
	}
	for i := range t.rows[:t.limit(len(t.rows))] {
		f.Lines = append(f.Lines, t.line(s, &t.rows[i]))
	}
	d.Draw(f)
}
