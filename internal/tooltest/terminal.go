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

// Terminal is a tool that runs on a pseudo terminal. The test types keys and reads the screen.
type Terminal struct {
	t      testing.TB
	master *os.File
	more   chan struct{} // new output
	done   chan struct{} // closed when the tool has ended and all of its output is read
	code   int

	mu     sync.Mutex
	vt     *vt
	output []byte // all output of the tool
}

// StartTerminal runs the tool with args on a terminal of the given size.
func StartTerminal(t *testing.T, tl *tool.Tool, width, height int, args ...string) *Terminal {
	t.Helper()
	return StartTerminalAs(t, tl, "xterm-256color", width, height, args...)
}

// StartTerminalAs is StartTerminal with the given terminal type in TERM.
func StartTerminalAs(t *testing.T, tl *tool.Tool, termType string, width, height int, args ...string) *Terminal {
	t.Helper()
	Root(t)
	t.Setenv("TERM", termType)
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

// Resize changes the size of the terminal and sends SIGWINCH to this process. The kernel sends it
// only to the foreground process group of the terminal, which this process is not in.
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

// end is a control sequence without effect that marks the end of the tool's output.
const end = "\x1b]end\a"

func (term *Terminal) read() {
	defer close(term.done)
	buf := make([]byte, 64<<10)
	for !strings.HasSuffix(term.written(), end) {
		n, err := term.master.Read(buf)
		term.mu.Lock()
		term.vt.Write(buf[:n])
		term.output = append(term.output, buf[:n]...)
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

// Raw reports whether the terminal is in raw mode: without line editing, echo and signals.
func (term *Terminal) Raw() bool {
	term.t.Helper()
	mode, err := unix.IoctlGetTermios(int(term.master.Fd()), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	return mode.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
}

// Type sends keys to the tool.
func (term *Terminal) Type(keys string) {
	term.t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// Lines returns the lines on the screen.
func (term *Terminal) Lines() []string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return slices.Clone(term.vt.text())
}

// Written returns everything that the tool has written to the terminal so far.
func (term *Terminal) Written() string {
	return strings.TrimSuffix(term.written(), end)
}

func (term *Terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return string(term.output)
}

// Await waits until wanted accepts the lines on the screen, and returns them. what describes the
// expected content in the failure message.
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
			term.t.Fatalf("no %s on the screen within %v:\n%s", what, deadline, strings.Join(lines, "\n"))
		}
	}
}

// Wait waits for the tool to end, and returns its exit code.
func (term *Terminal) Wait() int {
	term.t.Helper()
	select {
	case <-term.done:
	case <-time.After(deadline):
		term.t.Fatalf("the tool has not ended within %v:\n%s", deadline, strings.Join(term.Lines(), "\n"))
	}
	return term.code
}
