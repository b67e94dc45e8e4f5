// Package screen displays lines on a terminal: it redraws them without flicker, clips them
// to the window and scrolls. It does not depend on BPF.
//
// It uses the terminal that standard output refers to and also reads keys from it, so
// standard input can be redirected.
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

// ErrNone is returned if the output is not a terminal that can be drawn on.
var ErrNone = errors.New("no terminal to draw on")

// Frame is the content of the screen.
type Frame struct {
	// Title is the first line.
	Title string
	// Header holds the column headers, padded to the widths of the columns in Lines. The
	// header with the index Marked is highlighted.
	Header []string
	Marked int
	Lines  []string
	// Foot is the last line.
	Foot string
}

// Screen draws on a terminal and reads keys from it.
type Screen struct {
	term  tcell.Screen
	keys  chan Key
	quit  chan struct{}
	once  sync.Once
	frame Frame
	top   int // index of the first visible line
}

// Open takes over the terminal that out refers to. [Screen.Close] restores it.
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

// lookup returns the built-in description of a terminal type. Unknown types whose name
// starts with "xterm" are treated as xterm-256color.
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

// forward converts terminal events to keys until the screen is closed.
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

// Keys returns the channel of pressed keys. The caller passes those from Up on to
// [Screen.Handle].
func (s *Screen) Keys() <-chan Key { return s.keys }

// Close restores the terminal.
func (s *Screen) Close() {
	s.once.Do(func() {
		close(s.quit)
		s.term.Fini()
	})
}

// Draw displays the frame. Only differences from the previous frame are written.
func (s *Screen) Draw(f Frame) {
	s.frame = f
	s.draw()
}

// visibleLines returns the number of lines between header and foot.
func (s *Screen) visibleLines() int {
	_, height := s.term.Size()
	return max(height-3, 0)
}

func (s *Screen) draw() {
	s.top = max(min(s.top, len(s.frame.Lines)-s.visibleLines()), 0)
	_, height := s.term.Size()
	s.term.Clear()
	s.line(0, s.frame.Title, tcell.StyleDefault.Bold(true))
	s.header(1)
	lines := s.frame.Lines[s.top:]
	for i, text := range lines[:min(len(lines), s.visibleLines())] {
		s.line(2+i, text, tcell.StyleDefault)
	}
	if height > 3 {
		s.line(height-1, s.frame.Foot, tcell.StyleDefault.Dim(true))
	}
	s.term.Show()
}

// header draws the header in reverse video.
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
