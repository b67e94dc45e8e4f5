package screen

import (
	"fmt"
	"syscall"

	"github.com/gdamore/tcell/v2"
)

// Key is what the user asks for.
type Key int

// The keys. Those from Up on are for [Screen.Handle].
const (
	Quit    Key = iota
	Pause       // or go on
	Left        // the column to the left
	Right       // and to the right
	Reverse     // the order
	Up
	Down
	PageUp
	PageDown
	Home
	End
	Resize
	Suspend
)

// Help says which keys there are.
const Help = "q quit  space pause  < > column to sort by  r reverse  up down scroll"

// Manual says it at length: keys, and what they do.
func Manual() [][2]string {
	return [][2]string{
		{"q, Esc, Ctrl-C", "End."},
		{"Space, p", "Pause, or go on. What is counted meanwhile is not shown."},
		{"<, >, Left, Right", "Sort by the column beside the one that is marked."},
		{"r", "Reverse the order."},
		{"Up, Down, Page Up, Page Down, Home, End", "Scroll."},
		{"Ctrl-L, Ctrl-Z", "Draw all of it again; suspend."},
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

// Handle does what a key asks for that concerns the screen alone.
func (s *Screen) Handle(k Key) error {
	switch k {
	case Up:
		s.top--
	case Down:
		s.top++
	case PageUp:
		s.top -= s.room()
	case PageDown:
		s.top += s.room()
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

// suspend stops the process, as the terminal would for Ctrl-Z, until it is continued.
func (s *Screen) suspend() error {
	if err := s.term.Suspend(); err != nil {
		return fmt.Errorf("leave terminal: %w", err)
	}
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := s.term.Resume(); err != nil {
		return fmt.Errorf("take terminal: %w", err)
	}
	return nil
}
