// Package screen shows lines on a terminal: they are drawn again without flicker, cut to
// the window, and scrolled and chosen from by keys. It knows no BPF.
//
// The terminal is the one that output goes to. Keys are read from it too, so standard
// input may be anything.
package screen

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/gdamore/tcell/v2"
	"github.com/gdamore/tcell/v2/terminfo"
	"golang.org/x/sys/unix"
)

// ErrNone is returned for what is no terminal that can be drawn on.
var ErrNone = errors.New("no terminal to draw on")

// Frame is what is on the screen.
type Frame struct {
	// Title is the first line.
	Title string
	// Header are the cells above the lines, as wide as these have them; the one of the
	// number Marked stands out.
	Header []string
	Marked int
	Lines  []string
	// Foot is the last line.
	Foot string
}

// Screen is a terminal that is drawn on.
type Screen struct {
	term  tcell.Screen
	keys  chan Key
	quit  chan struct{}
	once  sync.Once
	frame Frame
	top   int // first line that is seen
}

// Open takes the terminal that is behind out. [Screen.Close] gives it back as it was.
//
// Returns ErrNone.
func Open(out *os.File) (*Screen, error) {
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	info, err := lookup(os.Getenv("TERM"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	tty, err := openTTY(out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	term, err := tcell.NewTerminfoScreenFromTtyTerminfo(tty, info)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err := term.Init(); err != nil {
		return nil, fmt.Errorf("set up terminal: %w", err)
	}
	return start(term), nil
}

// lookup finds a terminal by its name among those that are built in. Relatives of
// xterm understand what xterm does.
func lookup(name string) (*terminfo.Terminfo, error) {
	info, err := terminfo.LookupTerminfo(name)
	if err != nil && strings.HasPrefix(name, "xterm") {
		return terminfo.LookupTerminfo("xterm-256color")
	}
	return info, err
}

func start(term tcell.Screen) *Screen {
	s := &Screen{term: term, keys: make(chan Key), quit: make(chan struct{})}
	term.HideCursor()
	events := make(chan tcell.Event)
	go term.ChannelEvents(events, s.quit)
	go s.forward(events)
	return s
}

// forward turns events into keys until the screen is closed.
func (s *Screen) forward(events <-chan tcell.Event) {
	for event := range events {
		key, ok := keyOf(event)
		if !ok {
			continue
		}
		select {
		case s.keys <- key:
		case <-s.quit:
			return
		}
	}
}

// Keys are the keys that are hit, for [Screen.Handle] or the caller.
func (s *Screen) Keys() <-chan Key { return s.keys }

// Close gives the terminal back.
func (s *Screen) Close() {
	s.once.Do(func() {
		close(s.quit)
		s.term.Fini()
	})
}

// Draw shows the frame. Only what differs from the one before is written.
func (s *Screen) Draw(f Frame) {
	s.frame = f
	s.draw()
}

// room is how many lines there is room for between header and foot.
func (s *Screen) room() int {
	_, height := s.term.Size()
	return max(height-3, 0)
}

func (s *Screen) draw() {
	s.top = max(min(s.top, len(s.frame.Lines)-s.room()), 0)
	_, height := s.term.Size()
	s.term.Clear()
	s.line(0, s.frame.Title, tcell.StyleDefault.Bold(true))
	s.header(1)
	seen := s.frame.Lines[s.top:]
	for i, text := range seen[:min(len(seen), s.room())] {
		s.line(2+i, text, tcell.StyleDefault)
	}
	if height > 3 {
		s.line(height-1, s.frame.Foot, tcell.StyleDefault.Dim(true))
	}
	s.term.Show()
}

// header draws the header as a bar.
func (s *Screen) header(y int) {
	width, _ := s.term.Size()
	bar := tcell.StyleDefault.Reverse(true)
	s.term.PutStrStyled(0, y, strings.Repeat(" ", width), bar)
	x := 0
	for i, cell := range s.frame.Header {
		style := bar
		if i == s.frame.Marked {
			style = style.Bold(true).Underline(true)
		}
		s.term.PutStrStyled(x, y, cell, style)
		x += len(cell) + 1
	}
}

func (s *Screen) line(y int, text string, style tcell.Style) {
	s.term.PutStrStyled(0, y, text, style)
}
