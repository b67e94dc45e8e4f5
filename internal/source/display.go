package source

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/screen"
	"github.com/corescope/corescope/internal/tool"
)

// display is a table on a terminal.
type display struct {
	*screen.Screen
	stop   context.CancelFunc
	paused bool
}

// openDisplay opens the terminal for drawing. It returns nil if output is not such a terminal: the
// table is then plain text.
func openDisplay(s *tool.Session, stop context.CancelFunc) (*display, error) {
	out, ok := s.Terminal.(*os.File)
	if !ok || s.Out.Format() != output.Text {
		return nil, nil
	}
	scr, err := screen.Open(out)
	if errors.Is(err, screen.ErrNone) {
		if s.IsVerbose() {
			fmt.Fprintf(s.ErrOut, "%s: %v\n", s.Name(), err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.ErrOut.Hold()
	return &display{Screen: scr, stop: stop}, nil
}

// requests converts keys to calls of handle, until the context is done.
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

// show redraws the table on the terminal until the user quits. The last table stays there as text.
func (t *table) show(ctx context.Context, s *tool.Session, d *display) error {
	defer s.ErrOut.Release()
	defer d.Close()
	if err := s.Ready(); err != nil {
		return err
	}
	s.ErrOut.Forget() // do not show the line "ready": the table shows it
	t.draw(s, d)
	keys := d.requests(ctx, func(k screen.Key) error { return t.handle(s, d, k) })
	err := t.rounds.repeat(ctx, s, &t.epochs, keys, func() error { return t.refresh(s, d) })
	d.Close()
	t.limitText()
	return errors.Join(err, t.write(s))
}

// refresh draws the interval that has ended. Intervals during a pause and the rest at the end are
// discarded.
func (t *table) refresh(s *tool.Session, d *display) error {
	if d.paused || !s.Objects.Attached() {
		return t.forget(s)
	}
	return t.report(s, func(s *tool.Session) error {
		t.draw(s, d)
		return nil
	})
}

func (t *table) handle(s *tool.Session, d *display, key screen.Key) error {
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

// sortNext sorts by the shown column next to the current one.
func (t *table) sortNext(step int) {
	n := len(t.cols.Shown)
	i := (t.sorted() + step + n) % n
	if t.sorted() < 0 {
		i = 0
	}
	_ = t.sortBy(t.cols.Shown[i].Key) // cannot fail: the column exists
}

// sorted returns the index of the shown column that rows are sorted by, or -1.
func (t *table) sorted() int {
	for i, c := range t.cols.Shown {
		if c.Key == t.order.Column.Key {
			return i
		}
	}
	return -1
}

func (t *table) draw(s *tool.Session, d *display) {
	f := screen.Frame{
		Title: s.Name() + "  " + t.title(), Header: s.Out.Headers(), Marked: t.sorted(), Foot: screen.Help,
	}
	if d.paused {
		f.Title += "  PAUSED"
	}
	if last := s.ErrOut.LastHeld(); last != "" {
		f.Foot = last
	}
	for i := range t.rows[:t.limit(len(t.rows))] {
		f.Lines = append(f.Lines, t.line(s, &t.rows[i]))
	}
	d.Draw(f)
}
