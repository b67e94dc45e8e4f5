package command

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/doctor"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		width int
		want  []string
	}{
		{0, []string{"aa, bb, cc"}},
		{-5, []string{"aa, bb, cc"}},
		{10, []string{"aa, bb, cc"}},
		{9, []string{"aa, bb,", "cc"}},
		{7, []string{"aa, bb,", "cc"}},
		{6, []string{"aa,", "bb, cc"}},
		{1, []string{"aa,", "bb,", "cc"}},
	} {
		if got := wrap([]string{"aa", "bb", "cc"}, tt.width); !slices.Equal(got, tt.want) {
			t.Errorf("width %d: %q, want %q", tt.width, got, tt.want)
		}
	}
	if got := wrap(nil, 5); !slices.Equal(got, []string{""}) {
		t.Errorf("no items: %q, want one empty line", got)
	}
}

// TestTableFitsTerminal expects that the table of tools is not wider than a terminal, and that it
// has one line per tool if the output is not a terminal.
func TestTableFitsTerminal(t *testing.T) {
	r := &report{Machine: doctor.Read("/", "")}
	for _, name := range []string{"opensnoop", "tcplife"} {
		trial := &tool.Trial{Name: name, Runs: true}
		for _, hook := range []string{"complete", "insert", "issue", "merge", "requeue", "submit"} {
			trial.Hooks = append(trial.Hooks, tool.Explanation{Hook: hook, Where: "tp_btf/block_rq_" + hook, Taken: true})
		}
		r.Tools = append(r.Tools, trial)
	}
	master, slave := tooltest.PTY(t)
	const width = 80
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		var text []byte
		for buf := make([]byte, 4096); !bytes.Contains(text, []byte("<end>")); {
			n, err := master.Read(buf)
			if err != nil {
				break
			}
			text = append(text, buf[:n]...)
		}
		read <- string(text)
	}()
	if err := r.writeText(slave); err != nil {
		t.Fatal(err)
	}
	slave.WriteString("<end>")
	_, table, _ := strings.Cut(<-read, "TOOL ")
	lines := strings.Split(table, "\r\n")
	for _, line := range lines {
		if len(line) > width {
			t.Errorf("line of %d columns, want at most %d: %q", len(line), width, line)
		}
	}
	if len(lines) < 6 {
		t.Errorf("table of two tools with six hooks has %d lines, want at least 6: %q", len(lines), lines)
	}
	var piped bytes.Buffer
	if err := r.writeText(&piped); err != nil {
		t.Fatal(err)
	}
	_, table, _ = strings.Cut(piped.String(), "TOOL ")
	if n := strings.Count(table, "\n"); n != 3 || strings.Contains(table, " \n") {
		t.Errorf("table in a pipe has %d lines, want 3 without trailing spaces: %q", n, table)
	}
}
