// Package tooltest runs tools in live tests: it waits until they are ready, lets a
// workload happen, stops them and returns all that they said.
package tooltest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
)

// Row is one JSON object of a tool's output. Numbers are float64, so ids up to 2^53
// are exact.
type Row map[string]any

// Str returns a text of the row, "" if it has none by that key.
func (r Row) Str(key string) string { s, _ := r[key].(string); return s }

// Num returns a number of the row, 0 if it has none by that key.
func (r Row) Num(key string) float64 { n, _ := r[key].(float64); return n }

// Has reports whether the row has the key.
func (r Row) Has(key string) bool { _, ok := r[key]; return ok }

// List returns an array of texts.
func (r Row) List(key string) []string {
	all, _ := r[key].([]any)
	out := make([]string, len(all))
	for i, v := range all {
		out[i], _ = v.(string)
	}
	return out
}

// Symbols returns the names of a stack's functions, the innermost first, "" for a frame
// that has none.
func (r Row) Symbols(key string) []string {
	frames, _ := r[key].([]any)
	out := make([]string, len(frames))
	for i, f := range frames {
		frame, _ := f.(map[string]any)
		out[i], _ = frame["symbol"].(string)
	}
	return out
}

// HasSymbol tells whether one of them ends so: the functions of Go have their package
// before their name.
func (r Row) HasSymbol(key, end string) bool {
	return slices.ContainsFunc(r.Symbols(key), func(s string) bool { return strings.HasSuffix(s, end) })
}

// Bytes returns the exact bytes of a text, which KEY_base64 has where they are not UTF-8.
func (r Row) Bytes(t testing.TB, key string) string {
	t.Helper()
	if !r.Has(key + "_base64") {
		return r.Str(key)
	}
	b, err := base64.StdEncoding.DecodeString(r.Str(key + "_base64"))
	if err != nil {
		t.Fatalf("%s_base64: %v", key, err)
	}
	return string(b)
}

// Object returns an object of the row, such as a histogram's key.
func (r Row) Object(key string) Row { m, _ := r[key].(map[string]any); return m }

// Result is what a tool printed, by type.
type Result struct {
	Ready      Row
	Events     []Row
	Rows       []Row // of tables
	Histograms []Row
	Lost       []Row
	Summary    Row
	Stderr     string
	Code       int

	lastReport string       // the time of the report that was read last
	reports    atomic.Int64 // see JSONReports
	mu         sync.Mutex   // of Rows, see JSONUntil
}

// Accounts fails the test unless what was shown and what the summary says to be lost make
// up what happened. Of runs that the kernel left out (program_busy) it does not tell for
// which calls they would have been: they may make up what is missing.
func Accounts(t testing.TB, summary Row, shown, happened int) {
	t.Helper()
	missed := int(summary.Object("reasons").Num("program_busy"))
	lost := int(summary.Num("lost")) - missed
	if told := shown + lost; told > happened || told+missed < happened {
		t.Errorf("%d shown, %d lost and up to %d missed of %d", shown, lost, missed, happened)
	}
}

// Lost is what the summary says to be lost, but for two reasons: runs that the kernel left
// out, as on kernels whose programs can be preempted (7.0) these may have been of anything
// else; and, on a guest that hides process 1, what was not observed.
func Lost(summary Row) int {
	reasons := summary.Object("reasons")
	lost := summary.Num("lost") - reasons.Num("program_busy")
	if HidesProcess1() {
		lost -= reasons.Num("unobserved")
	}
	return int(lost)
}

// Where returns the events, or the rows of a table, for which keep is true.
func (r *Result) Where(keep func(Row) bool) []Row {
	return slices.DeleteFunc(slices.Concat(r.Events, r.Rows), func(row Row) bool { return !keep(row) })
}

// deadline is a bound on a tool that does not get ready or does not stop; it is no
// part of any judgement.
const deadline = 3 * time.Minute

// Root skips the test for users who may not load programs. The test is a live one from here to
// its end: see Alone.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load BPF programs")
	}
	machine.share(t)
}

// AnyWay says that what the test looks at is the same whichever way an event came: flags,
// filters and rendering in user space. Short runs leave it out, as test/kernels has one
// for each way to a hook.
func AnyWay(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("the same by any way to a hook: not in short runs")
	}
}

// OnHooks says which hooks the test is about. A short run by a way to another hook leaves
// it out.
func OnHooks(t testing.TB, hooks ...string) {
	t.Helper()
	_, forced, _ := strings.Cut(os.Getenv(argsEnv), "--hook ")
	hook, _, isForced := strings.Cut(forced, "=")
	if testing.Short() && isForced && !slices.Contains(hooks, hook) {
		t.Skipf("not about hook %s: not in short runs", hook)
	}
}

// Ways are the arguments for each way that a test tries by itself, the tool's own first.
// It is the only one in short runs, which are given their way.
func Ways(others ...[]string) [][]string {
	if testing.Short() {
		others = nil
	}
	return append([][]string{nil}, others...)
}

// argsEnv has arguments for every run, split at spaces: by them test/kernels takes each
// way to a hook, and each buffer, in turn.
const argsEnv = "CORESCOPE_ARGS"

// run is tool.Run, with those arguments.
func run(ctx context.Context, tl *tool.Tool, args []string, out, errOut io.Writer) int {
	extra := strings.Fields(os.Getenv(argsEnv))
	return tool.Run(ctx, tl, slices.Concat(args, extra), out, errOut)
}

// JSON runs the tool with args and --output json, calls load when all its hooks are
// attached, stops it when load returns, and returns what it printed. Without load the
// tool ends by itself. It fails the test if the tool does, or if a line is not as the tool's schema says, which short runs do
// not look at.
func JSON(t testing.TB, tl *tool.Tool, args []string, load func()) *Result {
	t.Helper()
	return runJSON(t, tl, args, &Result{}, load)
}

// attempts is how often JSONUndisturbed runs the tool.
const attempts = 20

// JSONUndisturbed is JSON for events that occur in interrupts, for example completed I/O. Where
// the kernel hides process 1, a tool misses the events in interrupts of that process. So the tool
// and load run again until process 1 did not run during load, whatever the result. load must do
// the same each time.
func JSONUndisturbed(t testing.TB, tl *tool.Tool, args []string, load func()) *Result {
	t.Helper()
	for i := 1; ; i++ {
		hidden := 0
		res := JSON(t, tl, args, func() {
			before := HiddenRuns()
			load()
			hidden = HiddenRuns() - before
		})
		if hidden == 0 || i == attempts || t.Failed() {
			return res
		}
		t.Logf("process 1, which is hidden, ran %d times during the load: it runs again", hidden)
	}
}

// JSONReports is JSON for tests of several reports. load is given the number of reports that
// the tool has printed so far, and continues its work until that is enough: how many reports
// a fixed amount of work fills depends on the speed of the machine.
func JSONReports(t testing.TB, tl *tool.Tool, args []string, load func(reports func() int)) *Result {
	t.Helper()
	res := &Result{}
	return runJSON(t, tl, args, res, func() {
		load(func() int { return int(res.reports.Load()) })
	})
}

// JSONUntil is JSON for tests whose result depends on what the tool has found out so far. load does
// its work for as long as more returns true: until enough accepts the rows of tables that the tool
// has printed so far, or the time of a test is over.
func JSONUntil(t testing.TB, tl *tool.Tool, args []string, enough func([]Row) bool, load func(more func() bool)) *Result {
	t.Helper()
	res := &Result{}
	end := time.Now().Add(deadline)
	return runJSON(t, tl, args, res, func() {
		load(func() bool {
			res.mu.Lock()
			defer res.mu.Unlock()
			return !enough(res.Rows) && time.Now().Before(end)
		})
	})
}

func runJSON(t testing.TB, tl *tool.Tool, args []string, res *Result, load func()) *Result {
	t.Helper()
	Root(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	r, w := io.Pipe()
	var stderr bytes.Buffer
	var done sync.WaitGroup
	done.Go(func() {
		res.Code = run(ctx, tl, append([]string{"--output", "json"}, args...), w, &stderr)
		w.Close()
	})
	res.read(t, r, during(load, cancel))
	done.Wait()
	res.Stderr = stderr.String()
	if res.Code != tool.ExitOK || res.Summary == nil {
		t.Fatalf("%s %q: exit code %d, summary %v: %s", tl.Name, args, res.Code, res.Summary, res.Stderr)
	}
	if !testing.Short() {
		res.validate(t, tl, args)
	}
	if n := res.Summary.Object("reasons").Num("program_busy"); n > 0 {
		t.Logf(LeftOut, int(n))
	}
	return res
}

// LeftOut is the form of what a test says where its tool has said it (program_busy).
const LeftOut = "the kernel left out %d runs of the tool's programs, which were preempted"

// during is what happens when the tool is ready.
func during(load, cancel func()) func() {
	return func() {
		if load != nil {
			load()
			cancel()
		}
	}
}

// read sorts the lines, and calls ready beside itself, so that the tool never waits
// for its reader.
func (res *Result) read(t testing.TB, r io.Reader, ready func()) {
	t.Helper()
	var done sync.WaitGroup
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var row Row
		if err := json.Unmarshal(text, &row); err != nil {
			t.Errorf("line is not JSON: %v: %q", err, text)
			continue
		}
		switch row.Str("type") {
		case "ready":
			res.Ready = row
			done.Go(ready)
		case "event":
			res.Events = append(res.Events, row)
		case "row":
			res.mu.Lock()
			res.Rows = append(res.Rows, row)
			res.mu.Unlock()
			res.countReport(row)
		case "histogram":
			res.Histograms = append(res.Histograms, row)
			res.countReport(row)
		case "lost":
			res.Lost = append(res.Lost, row)
		case "summary":
			res.Summary = row
		default:
			t.Errorf("line has no type: %q", text)
		}
	}
	done.Wait()
}

// countReport counts the reports: the rows of each have their own time.
func (res *Result) countReport(row Row) {
	if at := row.Str("time"); at != res.lastReport {
		res.lastReport = at
		res.reports.Add(1)
	}
}

// Fails runs a tool that is to end with the exit code and a message that has the text.
func Fails(t testing.TB, tl *tool.Tool, args []string, code int, text string) {
	t.Helper()
	var errOut bytes.Buffer
	if got := run(t.Context(), tl, args, io.Discard, &errOut); got != code || !strings.Contains(errOut.String(), text) {
		t.Errorf("%s %q: exit code %d, want %d and %q: %s", tl.Name, args, got, code, text, &errOut)
	}
}

// Text runs the tool as JSON does, but with its output as it is: in text, or as args
// say. It returns standard output.
func Text(t testing.TB, tl *tool.Tool, args []string, load func()) string {
	t.Helper()
	Root(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	var out bytes.Buffer
	r, w := io.Pipe()
	var code int
	var done sync.WaitGroup
	done.Go(func() {
		code = run(ctx, tl, args, &out, w)
		w.Close()
	})
	in := bufio.NewScanner(r)
	var stderr []string
	ready := false
	for in.Scan() {
		stderr = append(stderr, in.Text())
		if !ready && bytes.Contains(in.Bytes(), []byte(": ready: ")) {
			ready = true
			done.Go(during(load, cancel))
		}
	}
	done.Wait()
	if code != tool.ExitOK {
		t.Fatalf("%s %q: exit code %d: %q", tl.Name, args, code, stderr)
	}
	return out.String()
}

// File runs the tool as JSON does, with its output going to a file, as fast as a tool
// can write. It returns the number of rows and the summary.
func File(t testing.TB, tl *tool.Tool, args []string, load func()) (rows int, summary Row) {
	t.Helper()
	Root(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "out.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	out := &readyWriter{w: f, ready: during(load, cancel)}
	var stderr bytes.Buffer
	if code := run(ctx, tl, append([]string{"--output", "json"}, args...), out, &stderr); code != tool.ExitOK {
		t.Fatalf("%s %q: exit code %d: %s", tl.Name, args, code, &stderr)
	}
	out.done.Wait()
	return readFile(t, f.Name())
}

// readyWriter calls ready beside itself after the first write, which is the tool's
// word that it is ready.
type readyWriter struct {
	w     io.Writer
	ready func()
	once  sync.Once
	done  sync.WaitGroup
}

func (w *readyWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { w.done.Go(w.ready) })
	return w.w.Write(b)
}

func readFile(t testing.TB, path string) (rows int, summary Row) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var last []byte
	for text := range bytes.Lines(b) {
		if bytes.HasPrefix(text, []byte(`{"type":"event"`)) {
			rows++
		}
		last = text
	}
	if err := json.Unmarshal(last, &summary); err != nil || summary.Str("type") != "summary" {
		t.Fatalf("last line is no summary: %q", last)
	}
	return rows, summary
}
