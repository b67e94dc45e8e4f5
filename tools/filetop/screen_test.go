package filetop

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
)

// busy writes to files until the end of the test: per round to each file as many bytes as its
// value, one byte per call.
func busy(t *testing.T, files map[string]int) {
	t.Helper()
	dir := t.TempDir()
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	go func() {
		defer close(done)
		runtime.LockOSThread() // otherwise there are more threads than lines
		defer runtime.UnlockOSThread()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			for name, n := range files {
				if err := os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C: // leaves time for other work on a slow machine
			}
		}
	}()
}

// index returns the line of the screen with this suffix, or -1.
func index(lines []string, end string) int {
	for i, line := range lines {
		if strings.HasSuffix(line, end) {
			return i
		}
	}
	return -1
}

// pause pauses the screen at an interval that satisfies the condition. On a slow machine an
// interval can lack a file.
func pause(term *tooltest.Terminal, wanted func(lines []string) bool) []string {
	isPaused := func(lines []string) bool { return strings.HasSuffix(lines[0], "PAUSED") }
	for {
		term.Type(" ")
		if lines := term.Await("pause", isPaused); wanted(lines) {
			return lines
		}
		term.Type(" ")
		term.Await("life", func(lines []string) bool { return !isPaused(lines) && wanted(lines) })
	}
}

// isFoot reports whether the line is the last one: keys, or the last notice.
func isFoot(line string) bool {
	return strings.HasPrefix(line, "q quit") || strings.HasPrefix(line, "filetop: lost ")
}

func TestScreen(t *testing.T) {
	hostile := "c\x1b[31m\n"
	busy(t, map[string]int{"a-first": 3000, "b-second": 2000, hostile: 1000})
	term := tooltest.StartTerminal(t, Tool, 100, 12, "--pid", self(), "--write-only", "200ms")

	// A frame is read in parts, and an interval can lack a file: wait for complete screens, not for
	// parts.
	has := func(lines []string) bool { return index(lines, "a-first") >= 2 }
	ordered := func(names ...string) func(lines []string) bool {
		return func(lines []string) bool {
			last := 1
			for _, name := range names {
				at := index(lines, name)
				if at <= last {
					return false
				}
				last = at
			}
			return true
		}
	}
	term.Await("rows between head and foot", func(lines []string) bool {
		return has(lines) && strings.HasPrefix(lines[0], "filetop  ") && strings.Contains(lines[0], " loadavg: ") &&
			strings.HasPrefix(lines[1], "TID     COMM") && isFoot(lines[11])
	})
	if !term.Raw() {
		t.Error("the terminal is still in line mode")
	}
	term.Await("order by bytes, with an escaped name", ordered("a-first", "b-second", `R c\x1b[31m\n`))

	term.Type("r")
	term.Await("reverse order", ordered("b-second", "a-first"))
	term.Type(">>>>>>>>") // by the last column, the file name
	term.Await("order by name", ordered("a-first", "b-second"))

	term.Resize(60, 6)
	term.Await("smaller screen", func(lines []string) bool {
		return strings.HasPrefix(lines[0], "filetop  ") && strings.HasPrefix(lines[1], "TID ") && isFoot(lines[5])
	})
	term.Resize(100, 12)
	term.Await("larger screen", has)

	paused := pause(term, ordered("a-first", "b-second"))
	term.Type("r") // sorts the displayed interval
	sorted := term.Await("order in the pause", ordered("b-second", "a-first"))
	if paused[0] != sorted[0] {
		t.Errorf("the screen is not paused: %q, %q", paused[0], sorted[0])
	}
	term.Type("p")
	term.Await("life", func(lines []string) bool { return !strings.Contains(lines[0], "PAUSED") })

	term.Type("q")
	if code := term.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if term.Raw() {
		t.Error("the terminal mode is not restored")
	}
	left := term.Await("last table", func(lines []string) bool { return index(lines, "a-first") > 0 })
	if index(left, "scroll") >= 0 {
		t.Errorf("the screen is not cleared at the end: %q", left)
	}
}

// grow writes to a file until the end of the test, each time 64 bytes more than the last time. So no
// two intervals have the same figures, however regular the writes are.
func grow(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	go func() {
		defer close(done)
		runtime.LockOSThread() // one row
		defer runtime.UnlockOSThread()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for size := 3000; ; size += 64 {
			if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
}

// TestScreenDoesNotFlicker checks that only changes are written, without clearing the screen.
func TestScreenDoesNotFlicker(t *testing.T) {
	grow(t, "a-first")
	term := tooltest.StartTerminal(t, Tool, 100, 12, "--pid", self(), "100ms")
	term.Await("rows", func(lines []string) bool { return index(lines, "a-first") >= 2 })
	before := len(term.Written())
	for range 5 {
		last := term.Lines()[2]
		term.Await("change", func(lines []string) bool { return lines[2] != last })
	}
	after := term.Written()[before:]
	term.Type("\x03")
	term.Wait()
	if strings.Contains(after, "\x1b[2J") || strings.Contains(after, "\x1b[H\x1b[J") {
		t.Errorf("the screen is cleared: %q", after)
	}
	if strings.Contains(after, "TID     COMM") {
		t.Errorf("unchanged text is written again: %q", after)
	}
}

// TestNoScreen checks that tables are printed in sequence without the screen, or on a dumb
// terminal.
func TestNoScreen(t *testing.T) {
	busy(t, map[string]int{"a-first": 3000})
	for _, tt := range []struct {
		term string
		args []string
	}{{"xterm", []string{"-C"}}, {"dumb", nil}, {"", nil}} {
		term := tooltest.StartTerminalAs(t, Tool, tt.term, 100, 30, append(tt.args, "--pid", self(), "100ms", "2")...)
		if code := term.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		out := term.Written()
		if strings.Contains(out, "\x1b") || strings.Count(out, "TID     COMM") != 2 {
			t.Errorf("%q %q: %q", tt.term, tt.args, out)
		}
	}
}
