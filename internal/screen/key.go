package screen

import (
	"fmt"
	"syscall"

	"github.com/gdamore/tcell/v2"
)

// Key is an action that the user requests by a key.
type Key int

// The keys. The caller handles those before Up, [Screen.Handle] the others.
const (
	Quit    Key = iota
	Pause       // pause or continue
	Left        // sort by the column to the left
	Right       // sort by the column to the right
	Reverse     // reverse the sort order
	Up
	Down
	PageUp
	PageDown
	Home
	End
	Resize
	Suspend
)

// Help is a one-line summary of the keys.
const Help = "q quit  space pause  < > sort column  r reverse  up down scroll"

// Manual returns pairs of keys and their descriptions, for the manual page.
func Manual() [][2]string {
	return [][2]string{
		{"q, Esc, Ctrl-C", "Quit."},
		{"Space, p", "Pause or continue. Intervals that end during a pause are not shown."},
		{"<, >, Left, Right", "Sort by the column next to the marked one."},
		{"r", "Reverse the sort order."},
		{"Up, Down, Page Up, Page Down, Home, End", "Scroll."},
		{"Ctrl-L, Ctrl-Z", "Redraw the screen; suspend the process."},
	}
}

func keyOf(event tcell.Event) (Key, bool) {
	switch event := event.(type) {
	case *tcell.EventResize:
		return Resize, true
	case *tcell.EventKey:
		if event.Key() == tcell.KeyRune {
			return runeKey(event.Rune())
		}
		return specialKey(event.Key())
	}
	return 0, false
}

func runeKey(r rune) (Key, bool) {
	key, ok := map[rune]Key{
		'q': Quit, 'Q': Quit, ' ': Pause, 'p': Pause, '<': Left, ',': Left, '>': Right, '.': Right,
		'r': Reverse, 'R': Reverse, 'k': Up, 'j': Down,
	}[r]
	return key, ok
}

func specialKey(k tcell.Key) (Key, bool) {
	key, ok := map[tcell.Key]Key{
		tcell.KeyCtrlC: Quit, tcell.KeyEscape: Quit, tcell.KeyLeft: Left, tcell.KeyRight: Right,
		tcell.KeyUp: Up, tcell.KeyDown: Down, tcell.KeyPgUp: PageUp, tcell.KeyPgDn: PageDown,
		tcell.KeyHome: Home, tcell.KeyEnd: End, tcell.KeyCtrlL: Resize, tcell.KeyCtrlZ: Suspend,
	}[k]
	return key, ok
}

// Handle performs the actions that concern only the screen: scrolling, redrawing, suspending.
func (s *Screen) Handle(k Key) error {
	switch k {
	case Up:
		s.top--
	case Down:
		s.top++
	case PageUp:
		s.top -= s.visibleLines()
	case PageDown:
		s.top += s.visibleLines()
	case Home:
		s.top = 0
	case End:
		s.top = len(s.frame.Lines)
	case Resize:
		s.draw()
		s.term.Sync()
		return nil
	case Suspend:
		return s.suspend()
	}
	s.draw()
	return nil
}

// suspend stops the process group, as the terminal driver does on Ctrl-Z, until it is
// continued.
func (s *Screen) suspend() error {
	if err := s.term.Suspend(); err != nil {
		return fmt.Errorf("restore terminal: %w", err)
	}
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return fmt.Errorf("stop process group: %w", err)
	}
	if err := s.term.Resume(); err != nil {
		return fmt.Errorf("set up terminal: %w", err)
	}
	return nil
}
