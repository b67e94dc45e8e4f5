package tooltest

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
)

// Terminal is a tool that runs on a terminal of its own: bytes go in as if they were
// typed, and what is on the screen can be seen.
type Terminal struct {
	t      testing.TB
	master *os.File
	more   chan struct{}
	done   chan struct{} // the tool has ended, and all that it wrote was read
	code   int

	mu sync.Mutex
	vt *vt
	ed []byte // all that was written
}

// StartTerminal runs the tool with args on a terminal of that size.
func StartTerminal(t *testing.T, tl *tool.Tool, width, height int, args ...string) *Terminal {
	t.Helper()
	return StartTerminalAs(t, tl, "xterm-256color", width, height, args...)
}

// StartTerminalAs does so on a terminal of that type.
func StartTerminalAs(t *testing.T, tl *tool.Tool, name string, width, height int, args ...string) *Terminal {
	t.Helper()
	Root(t)
	t.Setenv("TERM", name)
	master, slave := PTY(t)
	term := &Terminal{t: t, master: master, more: make(chan struct{}, 1), done: make(chan struct{}), vt: newVT(width, height)}
	term.setSize(width, height)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		term.code = run(ctx, tl, args, slave, slave)
		slave.WriteString(end)
	}()
	go term.read()
	t.Cleanup(func() {
		cancel()
		<-term.done
	})
	return term
}

func (term *Terminal) setSize(width, height int) {
	term.t.Helper()
	size := unix.Winsize{Row: uint16(height), Col: uint16(width)}
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		term.t.Fatal(err)
	}
}

// Resize gives the terminal another size. Its own process group would be told by the
// kernel; the test's process is told here.
func (term *Terminal) Resize(width, height int) {
	term.t.Helper()
	term.mu.Lock()
	term.vt.resize(width, height)
	term.mu.Unlock()
	term.setSize(width, height)
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		term.t.Fatal(err)
	}
}

// end is written behind what a tool writes: a sequence that a terminal takes no notice of.
const end = "\x1b]end\a"

func (term *Terminal) read() {
	defer close(term.done)
	buf := make([]byte, 64<<10)
	for !strings.HasSuffix(term.written(), end) {
		n, err := term.master.Read(buf)
		term.mu.Lock()
		term.vt.Write(buf[:n])
		term.ed = append(term.ed, buf[:n]...)
		term.mu.Unlock()
		select {
		case term.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// Raw tells that a program takes each key by itself.
func (term *Terminal) Raw() bool {
	term.t.Helper()
	mode, err := unix.IoctlGetTermios(int(term.master.Fd()), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	return mode.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
}

// Type types keys.
func (term *Terminal) Type(keys string) {
	term.t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// Lines are what is on the screen.
func (term *Terminal) Lines() []string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return slices.Clone(term.vt.text())
}

// Written is all that the tool has written to the terminal until now.
func (term *Terminal) Written() string {
	return strings.TrimSuffix(term.written(), end)
}

func (term *Terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return string(term.ed)
}

// Await waits until the screen is as wanted, and returns it.
func (term *Terminal) Await(what string, wanted func(lines []string) bool) []string {
	term.t.Helper()
	timeout := time.After(deadline)
	for {
		lines := term.Lines()
		if wanted(lines) {
			return lines
		}
		select {
		case <-term.more:
		case <-timeout:
			term.t.Fatalf("the screen has no %s:\n%s", what, strings.Join(lines, "\n"))
		}
	}
}

// Wait waits for the tool to end, and returns its exit code.
func (term *Terminal) Wait() int {
	term.t.Helper()
	select {
	case <-term.done:
	case <-time.After(deadline):
		term.t.Fatalf("the tool does not end:\n%s", strings.Join(term.Lines(), "\n"))
	}
	return term.code
}
