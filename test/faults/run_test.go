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

// deadline is the time after which a test fails because the tool hangs; no check depends on it.
const deadline = 3 * time.Minute

// binary is the path of corescope, built by withBinary.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(loadEnv) != "" {
		work()
		return
	}
	flag.Parse()
	// The tools of TestTasks wait for one another. slots limits the others.
	flag.Set("test.parallel", strconv.Itoa(max(20, len(tools.All()))))
	os.Exit(withBinary(m.Run))
}

// withBinary builds the command, unless it is in the directory of the test binary, as in virtual
// machines of test/kernels.
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

// run is a tool that runs in its own process.
type run struct {
	*exec.Cmd
	ready  chan struct{} // closed when the tool reports that it is ready
	done   chan struct{} // closed when all of its output has been read
	out    *os.File
	stderr bytes.Buffer

	hooks   []string
	rows    int // or the sum of counts in tables and histograms
	lines   int // or the counts of histograms; compared with events in the summary
	column  string
	tool    string
	lost    []tooltest.Row
	summary tooltest.Row
	hists   []tooltest.Row
	seen    []tooltest.Row // the rows, if keep is set
	keep    bool
	err     error // of parsing a line
	listed  int   // rows expected of a list when the tool started; -1 for other tools
	list    func() int
}

// command returns the tool with flags that select the load.
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

// within runs a shell script before the tool, in the same process.
func (r *run) within(script string, args ...string) *run {
	argv := append([]string{"/bin/sh", "-c", script + ` && exec "$0" "$@"`}, r.Args...)
	r.Path, r.Args = "/bin/sh", argv
	return r
}

// start starts the tool and reads its output, without waiting until it is ready.
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

// await waits until the tool is ready, and fails the test if the tool ends before.
func (r *run) await(t testing.TB) *run {
	t.Helper()
	if !r.isReady(t) {
		err := r.Wait()
		t.Fatalf("%q ended before it was ready: %v: %s", r.Args, err, &r.stderr)
	}
	return r
}

// isReady waits until the tool is ready or ends, and reports whether it became ready.
func (r *run) isReady(t testing.TB) bool {
	t.Helper()
	select {
	case <-r.ready:
		return true
	case <-r.done:
	case <-time.After(deadline):
		t.Fatalf("%q did not become ready: %s", r.Args, &r.stderr)
	}
	select {
	case <-r.ready: // a list may end at once
		return true
	default:
		return false
	}
}

// end waits until the tool exits.
func (r *run) end(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(deadline):
		t.Fatalf("%q does not exit: %s", r.Args, &r.stderr)
	}
	if r.ProcessState == nil {
		// The output can be closed by the test, and the tool still run.
		late := time.AfterFunc(deadline, func() { r.Process.Kill() })
		defer late.Stop()
		if err := r.Wait(); r.ProcessState == nil {
			t.Fatal(err)
		}
	}
	return r.ProcessState
}

// stop interrupts the tool, or waits for the end of a list, and fails the test unless it exits with
// 0 and a summary.
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

// judge fails the test unless rows and lost events add up to what happened. Skipped program runs
// (program_busy) may have been events of other processes. So may entries that could not be stored
// (map_full), such as those of all open sockets: with 30,000 threads that exit, the kernel has no memory for
// some.
func (r *run) judge(s *subject, what happened) {
	t := s.T
	t.Helper()
	if r.listed >= 0 {
		// The Go runtime of the load can create threads, areas and descriptors in the meantime.
		what = happened{r.listed, max(0, r.list()-r.listed)}
	}
	reasons := r.summary.Object("reasons")
	skipped := int(reasons.Num("program_busy"))
	if s.samples > 0 {
		// A sample that was not taken belongs to no task: it can be the load's or another's.
		skipped += int(reasons.Num("unobserved"))
	}
	lost := int(r.summary.Num("lost")) - skipped
	reported, unstored := r.rows+lost, int(reasons.Num("map_full"))
	if off := what.n - reported; off < -what.hidden-unstored || off > skipped+what.hidden {
		t.Errorf("%d rows, %d lost, %d skipped, want a sum of %+v: %v", r.rows, lost, skipped, what, r.summary)
	}
	if events := int(r.summary.Num("events")); events != r.lines {
		t.Errorf("the summary has %d events, output has %d rows", events, r.lines)
	}
	var reportedLost float64
	for _, row := range r.lost {
		reportedLost += row.Num("lost")
	}
	if reportedLost > r.summary.Num("lost") {
		t.Errorf("messages report %v lost events, the summary only %v", reportedLost, r.summary.Num("lost"))
	}
}

// losses returns the number of lost events, except those in interrupts while the program ran, which
// does not depend on buffers, and those of process 1 that some guests do not observe.
func (r *run) losses() int {
	reasons := r.summary.Object("reasons")
	lost := r.summary.Num("lost") - reasons.Num("program_busy")
	if tooltest.HidesProcess1() {
		lost -= reasons.Num("unobserved")
	}
	return int(lost)
}

// checkFailure fails the test unless the tool exited with the code, and the last line of standard
// error is an error message that contains the words.
func (r *run) checkFailure(t testing.TB, code int, words ...string) {
	t.Helper()
	state := r.end(t)
	text := strings.TrimSpace(r.stderr.String())
	text = text[strings.LastIndexByte(text, '\n')+1:]
	if state.ExitCode() != code || !strings.HasPrefix(text, r.tool+": ") {
		t.Errorf("%q: %v, want exit code %d and an error message: %s", r.Args, state, code, text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q: error message does not contain %q: %s", r.Args, word, text)
		}
	}
}
