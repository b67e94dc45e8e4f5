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

// busy writes to files again and again until the test is over: to each as many bytes a
// round as stand in its place, by one byte each.
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
		runtime.LockOSThread() // or there are more threads than lines
		defer runtime.UnlockOSThread()
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for {
			for name, n := range files {
				if err := os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-stop:
				return
			case <-again.C: // a slow machine has other things to do
			}
		}
	}()
}

// index returns the line of the screen that ends so, or -1.
func index(lines []string, end string) int {
	for i, line := range lines {
		if strings.HasSuffix(line, end) {
			return i
		}
	}
	return -1
}

// pause stops the screen at an interval that is as wanted. On a slow machine one may lack
// a file.
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

// isFoot tells the last line: the keys, or what was said last.
func isFoot(line string) bool {
	return strings.HasPrefix(line, "q quit") || strings.HasPrefix(line, "filetop: lost ")
}

func TestScreen(t *testing.T) {
	hostile := "c\x1b[31m\n"
	busy(t, map[string]int{"a-first": 3000, "b-second": 2000, hostile: 1000})
	term := tooltest.StartTerminal(t, Tool, 100, 12, "--pid", self(), "--write-only", "200ms")

	has := func(lines []string) bool { return index(lines, "a-first") >= 2 }
	lines := term.Await("rows", has)
	if !term.Raw() {
		t.Error("the terminal is as it was")
	}
	if !strings.HasPrefix(lines[0], "filetop  ") || !strings.Contains(lines[0], " loadavg: ") || !strings.HasPrefix(lines[1], "TID     COMM") {
		t.Errorf("top of the screen: %q", lines[:2])
	}
	if !isFoot(lines[11]) {
		t.Errorf("foot of the screen: %q", lines[11])
	}
	lines = term.Await("escaped name", func(lines []string) bool { return index(lines, `R c\x1b[31m\n`) > 0 })
	if a, b, c := index(lines, "a-first"), index(lines, "b-second"), index(lines, `c\x1b[31m\n`); a > b || b > c {
		t.Errorf("not sorted by bytes:\n%s", strings.Join(lines, "\n"))
	}

	term.Type("r")
	term.Await("reverse order", func(lines []string) bool { return has(lines) && index(lines, "b-second") < index(lines, "a-first") })
	term.Type(">>>>>>>>") // by the last column, which is the name of the file
	term.Await("order by name", func(lines []string) bool { return has(lines) && index(lines, "a-first") < index(lines, "b-second") })

	term.Resize(60, 6)
	term.Await("smaller screen", func(lines []string) bool {
		return strings.HasPrefix(lines[0], "filetop  ") && strings.HasPrefix(lines[1], "TID ") && isFoot(lines[5])
	})
	term.Resize(100, 12)
	term.Await("larger screen", has)

	paused := pause(term, func(lines []string) bool { return has(lines) && index(lines, "b-second") >= 2 })
	term.Type("r") // sorts what is there
	sorted := term.Await("order in the pause", func(lines []string) bool { return index(lines, "a-first") > index(lines, "b-second") })
	if paused[0] != sorted[0] {
		t.Errorf("it goes on: %q, %q", paused[0], sorted[0])
	}
	term.Type("p")
	term.Await("life", func(lines []string) bool { return !strings.Contains(lines[0], "PAUSED") })

	term.Type("q")
	if code := term.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if term.Raw() {
		t.Error("the terminal is not given back")
	}
	left := term.Await("last table", func(lines []string) bool { return index(lines, "a-first") > 0 })
	if index(left, "scroll") >= 0 {
		t.Errorf("the screen is left behind: %q", left)
	}
}

// Only what has changed is written: the screen is not cleared between two frames.
func TestScreenDoesNotFlicker(t *testing.T) {
	busy(t, map[string]int{"a-first": 3000})
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
		t.Errorf("what stays is written again: %q", after)
	}
}

// Without the screen, and where the terminal can do nothing, there are blocks.
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
