package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// deadline is a bound on what does not happen; it is no part of any judgement.
const deadline = 3 * time.Minute

// binary is the path of the command, made by TestMain.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(loadEnv) != "" {
		work()
		return
	}
	flag.Parse()
	// Most of the time they wait, in TestTasks for one another.
	flag.Set("test.parallel", strconv.Itoa(max(20, len(tools.All()))))
	os.Exit(withBinary(m.Run))
}

// withBinary builds the command, unless it lies beside the test, as in a machine of
// test/kernels.
func withBinary(run func() int) int {
	if binary = filepath.Join(filepath.Dir(os.Args[0]), "corescope"); filepath.Dir(os.Args[0]) == "/test" {
		return run()
	}
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "corescope")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "../../cmd/corescope")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v: %s\n", err, out)
		return 1
	}
	return run()
}

// run is a tool that runs as a process of its own.
type run struct {
	*exec.Cmd
	ready  chan struct{} // closed when it says so
	done   chan struct{} // closed when all that it wrote is read
	out    *os.File
	stderr bytes.Buffer

	hooks   []string
	rows    int // or what tables and histograms count
	lines   int // or what histograms count, as the summary does
	column  string
	tool    string
	lost    []tooltest.Row
	summary tooltest.Row
	hists   []tooltest.Row
	seen    []tooltest.Row // the rows, if keep
	keep    bool
	err     error // of a line
	listed  int   // the rows of a list as the tool started, -1 of other tools
	list    func() int
}

// command is the tool, told to show the load.
func (s *subject) command(args ...string) *run {
	args = slices.Concat([]string{s.tool.Name, "--output", "json"}, s.args(s.load), args)
	if s.perf {
		args = append(args, "--perf-buffer")
	}
	r := &run{
		Cmd: exec.Command(binary, args...), ready: make(chan struct{}), done: make(chan struct{}),
		column: s.column, tool: s.tool.Name, listed: -1,
	}
	if s.isList() {
		r.list = func() int { return s.listed(s.load, s) }
		r.listed = r.list()
	}
	r.Stderr = &r.stderr
	return r
}

// within lets a script go before the tool, in the same process.
func (r *run) within(script string, args ...string) *run {
	argv := append([]string{"/bin/sh", "-c", script + ` && exec "$0" "$@"`}, r.Args...)
	r.Path, r.Args = "/bin/sh", argv
	return r
}

// start starts the tool and reads what it says. It does not wait.
func (r *run) start(t testing.TB) *run {
	return r.startReading(t, func(f io.Reader) io.Reader { return f })
}

func (r *run) startReading(t testing.TB, through func(io.Reader) io.Reader) *run {
	t.Helper()
	tooltest.Root(t)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = in
	r.Stdout = out
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	t.Cleanup(func() {
		r.Process.Kill()
		r.Wait()
		in.Close()
	})
	go r.read(through(in))
	return r
}

func (r *run) read(from io.Reader) {
	defer close(r.done)
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if bytes.HasPrefix(line, []byte(`{"type":"event"`)) && !r.keep {
			r.rows, r.lines = r.rows+1, r.lines+1
			continue
		}
		var row tooltest.Row
		if err := json.Unmarshal(line, &row); err != nil {
			r.err = fmt.Errorf("line %.100q: %w", line, err)
			return
		}
		r.take(row)
	}
}

func (r *run) take(row tooltest.Row) {
	switch row.Str("type") {
	case "ready":
		r.hooks = row.List("hooks")
		close(r.ready)
	case "event":
		r.rows, r.lines = r.rows+1, r.lines+1
		r.seen = append(r.seen, row)
	case "histogram":
		r.rows += int(row.Num("count"))
		r.lines = r.rows
		r.hists = append(r.hists, row)
	case "row":
		r.rows += int(row.Num(r.column))
		r.lines++
	case "lost":
		r.lost = append(r.lost, row)
	case "summary":
		r.summary = row
	}
}

// await waits until the tool is ready; it fails the test if it ends before.
func (r *run) await(t testing.TB) *run {
	t.Helper()
	if !r.isReady(t) {
		err := r.Wait()
		t.Fatalf("%q has ended: %v: %s", r.Args, err, &r.stderr)
	}
	return r
}

// isReady waits until the tool is ready, and reports whether it was before it ended.
func (r *run) isReady(t testing.TB) bool {
	t.Helper()
	select {
	case <-r.ready:
		return true
	case <-r.done:
	case <-time.After(deadline):
		t.Fatalf("%q is not ready: %s", r.Args, &r.stderr)
	}
	select {
	case <-r.ready: // a list that was read to its end
		return true
	default:
		return false
	}
}

// end waits for the end, and returns how the tool ended.
func (r *run) end(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(deadline):
		t.Fatalf("%q does not end: %s", r.Args, &r.stderr)
	}
	if r.ProcessState == nil {
		if err := r.Wait(); r.ProcessState == nil {
			t.Fatal(err)
		}
	}
	return r.ProcessState
}

// stop interrupts the tool, or waits for the end of a list, and fails the test if it does not
// end well.
func (r *run) stop(t testing.TB) *run {
	t.Helper()
	if r.listed < 0 {
		r.signal(t, unix.SIGINT)
	}
	if state := r.end(t); state.ExitCode() != 0 || r.summary == nil || r.err != nil {
		t.Fatalf("%q: %v, summary %v, %v: %s", r.Args, state, r.summary, r.err, &r.stderr)
	}
	return r
}

func (r *run) signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := r.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// judge fails the test unless the rows and what is said to be lost make up what
// happened. Runs that a busy program has left out need not have been the load's.
func (r *run) judge(t testing.TB, what happened) {
	t.Helper()
	if r.listed >= 0 {
		// The load may get threads, areas and descriptors of the Go runtime meanwhile.
		what = happened{r.listed, max(0, r.list()-r.listed)}
	}
	busy := int(r.summary.Object("reasons").Num("program_busy"))
	lost := int(r.summary.Num("lost")) - busy
	told := r.rows + lost
	if off := what.n - told; off < -what.hidden || off > busy+what.hidden {
		t.Errorf("%d rows and %d lost, %d busy, of %+v that happened: %v", r.rows, lost, busy, what, r.summary)
	}
	if events := int(r.summary.Num("events")); events != r.lines {
		t.Errorf("summary says %d rows, there are %d", events, r.lines)
	}
	var said float64
	for _, row := range r.lost {
		said += row.Num("lost")
	}
	if said > r.summary.Num("lost") {
		t.Errorf("said to be lost %v, in all %v", said, r.summary.Num("lost"))
	}
}

// losses is how many are said to be lost, but for what process 1 hides on some guests.
func (r *run) losses() int {
	lost := r.summary.Num("lost")
	if tooltest.HidesProcess1() {
		lost -= r.summary.Object("reasons").Num("unobserved")
	}
	return int(lost)
}

// says fails the test unless the tool ended with the code, and a sentence that has the
// words as the last thing on standard error.
func (r *run) says(t testing.TB, code int, words ...string) {
	t.Helper()
	state := r.end(t)
	text := strings.TrimSpace(r.stderr.String())
	text = text[strings.LastIndexByte(text, '\n')+1:]
	if state.ExitCode() != code || !strings.HasPrefix(text, r.tool+": ") {
		t.Errorf("%q: %v, want exit code %d and a sentence: %s", r.Args, state, code, text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q: %s", r.Args, word, text)
		}
	}
}
