// Package tooltest runs tools in live tests: it waits until they are ready, runs a workload, stops
// them, and returns their output.
package tooltest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tool"
)

// Row is one JSON object of a tool's output. Numbers are float64, so IDs up to 2^53 are exact.
type Row map[string]any

// Str returns a string of the row, "" if there is none with that key.
func (r Row) Str(key string) string { s, _ := r[key].(string); return s }

// Num returns a number of the row, 0 if there is none with that key.
func (r Row) Num(key string) float64 { n, _ := r[key].(float64); return n }

// Has reports whether the row has the key.
func (r Row) Has(key string) bool { _, ok := r[key]; return ok }

// List returns an array of strings.
func (r Row) List(key string) []string {
	all, _ := r[key].([]any)
	out := make([]string, len(all))
	for i, v := range all {
		out[i], _ = v.(string)
	}
	return out
}

// Symbols returns the symbols of a stack, innermost first, "" for a frame without a symbol.
func (r Row) Symbols(key string) []string {
	frames, _ := r[key].([]any)
	out := make([]string, len(frames))
	for i, f := range frames {
		frame, _ := f.(map[string]any)
		out[i], _ = frame["symbol"].(string)
	}
	return out
}

// HasSymbol reports whether a symbol of a stack ends with suffix. Symbols of Go functions start
// with the package path.
func (r Row) HasSymbol(key, suffix string) bool {
	return slices.ContainsFunc(r.Symbols(key), func(s string) bool { return strings.HasSuffix(s, suffix) })
}

// Bytes returns the exact bytes of a string: those of KEY_base64 if they are not UTF-8.
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

// Result is the output of a tool, by type.
type Result struct {
	Ready      Row
	Events     []Row
	Rows       []Row // rows of tables
	Histograms []Row
	Lost       []Row
	Summary    Row
	Stderr     string
	Code       int

	lastReport string       // time of the last report that was read
	reports    atomic.Int64 // number of reports, see JSONReports
	mu         sync.Mutex   // guards Rows, see JSONUntil
}

// CheckTotal fails the test unless the rows and the lost events of the summary add up to the number
// of events that happened. Program runs that the kernel skipped (program_busy) can belong to any
// calls, so they can account for missing events, but need not.
func CheckTotal(t testing.TB, summary Row, rows, happened int) {
	t.Helper()
	skipped := int(summary.Object("reasons").Num("program_busy"))
	lost := int(summary.Num("lost")) - skipped
	if reported := rows + lost; reported > happened || reported+skipped < happened {
		t.Errorf("%d rows, %d lost events and %d skipped runs do not add up to %d events", rows, lost, skipped, happened)
	}
}

// Lost returns the number of lost events in the summary, except for two loss reasons: skipped
// program runs, which can belong to unrelated events on kernels with preemptible programs (7.0),
// and, on a guest that hides process 1, unobserved events.
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

// deadline is the time after which a tool counts as hanging. No test measures with it: it leaves time
// for an emulated machine that shares its CPUs.
const deadline = 8 * time.Minute

// withDeadline returns the context of a run, which ends after deadline, and a function that cancels
// it. A run that the deadline ended has not observed all of its load, so it fails the test here
// instead of with the numbers of that part.
func withDeadline(t testing.TB) (ctx context.Context, cancel, check func()) {
	ctx, cancel = context.WithTimeout(t.Context(), deadline)
	return ctx, cancel, func() {
		t.Helper()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatalf("the tool was stopped after %v: it did not end, or the load did not", deadline)
		}
	}
}

// Root skips the test unless it runs as root. From this call to its end the test is a live test:
// see Alone.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load BPF programs")
	}
	machine.share(t)
}

// AnyAttachType declares that the result of the test does not depend on the attach type: it tests
// flags, filters or rendering in user space. Short runs skip it, because test/kernels has a short
// run for each attach type.
func AnyAttachType(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("independent of the attach type: not in short runs")
	}
}

// OnHooks declares which hooks the test depends on. A short run that forces the attach type of
// another hook skips it.
func OnHooks(t testing.TB, hooks ...string) {
	t.Helper()
	_, forced, _ := strings.Cut(os.Getenv(argsEnv), "--hook ")
	hook, _, isForced := strings.Cut(forced, "=")
	if testing.Short() && isForced && !slices.Contains(hooks, hook) {
		t.Skipf("independent of hook %s, whose attach type is forced: not in short runs", hook)
	}
}

// ArgVariants returns the argument lists that a test runs the tool with, to use several attach
// types: nil for the default, then others. Short runs use only nil, because argsEnv sets their
// attach type.
func ArgVariants(others ...[]string) [][]string {
	if testing.Short() {
		others = nil
	}
	return append([][]string{nil}, others...)
}

// argsEnv contains additional arguments for every run, separated by spaces. test/kernels uses them
// to force each attach type and each type of buffer in turn.
const argsEnv = "CORESCOPE_ARGS"

// run is tool.Run with the arguments of argsEnv.
func run(ctx context.Context, tl *tool.Tool, args []string, out, errOut io.Writer) int {
	extra := strings.Fields(os.Getenv(argsEnv))
	return tool.Run(ctx, tl, slices.Concat(args, extra), out, errOut)
}

// JSON runs the tool with args and --output json, calls load when all its hooks are attached, stops
// the tool when load returns, and returns its output. If load is nil, the tool must end by itself.
// JSON fails the test if the tool fails or, except in short runs, if a line does not match the
// tool's schema.
func JSON(t testing.TB, tl *tool.Tool, args []string, load func()) *Result {
	t.Helper()
	return runJSON(t, tl, args, &Result{}, load)
}

// attempts is the maximum number of runs of JSONUndisturbed, TextUndisturbed and JSONUnskipped.
const attempts = 20

// JSONUndisturbed is JSON for events in interrupts, for example completed I/O. If the kernel hides
// process 1, a tool misses the events in interrupts that occur while process 1 runs. So the tool
// and load are repeated until process 1 has not run during load, independent of the result. load
// must do the same each time.
func JSONUndisturbed(t testing.TB, tl *tool.Tool, args []string, load func()) *Result {
	t.Helper()
	return undisturbed(t, load, func(load func()) *Result { return JSON(t, tl, args, load) })
}

// TextUndisturbed is Text for events in interrupts, see JSONUndisturbed.
func TextUndisturbed(t testing.TB, tl *tool.Tool, args []string, load func()) string {
	t.Helper()
	return undisturbed(t, load, func(load func()) string { return Text(t, tl, args, load) })
}

func undisturbed[R any](t testing.TB, load func(), run func(load func()) R) R {
	t.Helper()
	for i := 1; ; i++ {
		hidden := 0
		res := run(func() {
			before := HiddenRuns()
			load()
			hidden = HiddenRuns() - before
		})
		if hidden == 0 || i == attempts || t.Failed() {
			return res
		}
		t.Logf("the hidden process 1 ran %d times during the load: run the tool again", hidden)
	}
}

// JSONReports is JSON for tests of several reports. reports returns the number of reports that the
// tool has printed so far. load continues its work until there are enough, because the number of
// reports during a fixed amount of work depends on the speed of the machine.
func JSONReports(t testing.TB, tl *tool.Tool, args []string, load func(reports func() int)) *Result {
	t.Helper()
	res := &Result{}
	return runJSON(t, tl, args, res, func() {
		load(func() int { return int(res.reports.Load()) })
	})
}

// JSONUntil is JSON for tests whose load must continue until the tool has printed certain rows of a
// table. load works as long as more returns true: until enough accepts the rows that the tool has
// printed so far, or deadline has passed.
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

// JSONEvents is JSON for loads that depend on what the tool has printed. events returns the events so
// far; load must stop when more returns false, because the deadline has passed.
func JSONEvents(t testing.TB, tl *tool.Tool, args []string, load func(events func() []Row, more func() bool)) *Result {
	t.Helper()
	res := &Result{}
	end := time.Now().Add(deadline)
	return runJSON(t, tl, args, res, func() {
		load(func() []Row {
			res.mu.Lock()
			defer res.mu.Unlock()
			return slices.Clone(res.Events)
		}, func() bool { return time.Now().Before(end) })
	})
}

// JSONUnskipped is JSON for tools that fail if events were lost. On kernels with preemptible programs
// (7.0) the kernel can skip runs of the tool's programs. So the tool and load are repeated until it
// has skipped none. load must do the same each time.
func JSONUnskipped(t testing.TB, tl *tool.Tool, args []string, load func()) *Result {
	t.Helper()
	Root(t)
	for i := 1; ; i++ {
		res := &Result{}
		res.run(t, tl, args, load)
		skipped := int(res.Summary.Object("reasons").Num("program_busy"))
		if skipped == 0 || i == attempts || t.Failed() {
			res.check(t, tl, args)
			return res
		}
		t.Logf(SkippedRuns+": run the tool again", skipped)
	}
}

func runJSON(t testing.TB, tl *tool.Tool, args []string, res *Result, load func()) *Result {
	t.Helper()
	Root(t)
	res.run(t, tl, args, load)
	res.check(t, tl, args)
	return res
}

// run runs the tool and sets the result.
func (res *Result) run(t testing.TB, tl *tool.Tool, args []string, load func()) {
	t.Helper()
	ctx, cancel, checkDeadline := withDeadline(t)
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
	checkDeadline()
	res.Stderr = stderr.String()
}

// check fails the test if the tool failed or if a line does not match its schema.
func (res *Result) check(t testing.TB, tl *tool.Tool, args []string) {
	t.Helper()
	if n := res.Summary.Object("reasons").Num("program_busy"); n > 0 {
		t.Logf(SkippedRuns, int(n))
	}
	if res.Code != tool.ExitOK || res.Summary == nil {
		t.Fatalf("%s %q: exit code %d, summary %v: %s", tl.Name, args, res.Code, res.Summary, res.Stderr)
	}
	if !testing.Short() {
		res.validate(t, tl, args)
	}
}

// SkippedRuns is the format of the log message about skipped program runs (program_busy).
const SkippedRuns = "the kernel skipped %d runs of the tool's programs"

// during returns a function to call when the tool is ready: it runs the load, then stops the tool.
// The load does not change its thread: what it does itself has one tid.
func during(load, cancel func()) func() {
	return func() {
		if load != nil {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			load()
			cancel()
		}
	}
}

// read reads the lines by type. It calls ready in another goroutine, so that the tool never waits
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
			res.mu.Lock()
			res.Events = append(res.Events, row)
			res.mu.Unlock()
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
			t.Errorf("line has an unknown type: %q", text)
		}
	}
	done.Wait()
}

// countReport counts reports. All rows of a report have the same time.
func (res *Result) countReport(row Row) {
	if time := row.Str("time"); time != res.lastReport {
		res.lastReport = time
		res.reports.Add(1)
	}
}

// Fails runs a tool and expects the exit code and a message that contains the text.
func Fails(t testing.TB, tl *tool.Tool, args []string, code int, text string) {
	t.Helper()
	var errOut bytes.Buffer
	if got := run(t.Context(), tl, args, io.Discard, &errOut); got != code || !strings.Contains(errOut.String(), text) {
		t.Errorf("%s %q: exit code %d, want %d and %q: %s", tl.Name, args, got, code, text, &errOut)
	}
}

// Text runs the tool like JSON, but in the output format of args, by default text. It returns
// standard output.
func Text(t testing.TB, tl *tool.Tool, args []string, load func()) string {
	t.Helper()
	Root(t)
	ctx, cancel, checkDeadline := withDeadline(t)
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
	checkDeadline()
	if code != tool.ExitOK {
		t.Fatalf("%s %q: exit code %d: %q", tl.Name, args, code, stderr)
	}
	return out.String()
}

// File runs the tool like JSON, but with its output to a file, so that the tool writes at full
// speed. It returns the number of events and the summary.
func File(t testing.TB, tl *tool.Tool, args []string, load func()) (rows int, summary Row) {
	t.Helper()
	Root(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "out.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel, checkDeadline := withDeadline(t)
	defer cancel()
	out := &readyWriter{w: f, ready: during(load, cancel)}
	var stderr bytes.Buffer
	if code := run(ctx, tl, append([]string{"--output", "json"}, args...), out, &stderr); code != tool.ExitOK {
		t.Fatalf("%s %q: exit code %d: %s", tl.Name, args, code, &stderr)
	}
	out.done.Wait()
	checkDeadline()
	return readFile(t, f.Name())
}

// readyWriter calls ready, in another goroutine, at the first write: the row of type ready.
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
		t.Fatalf("last line is not a summary: %q", last)
	}
	return rows, summary
}
