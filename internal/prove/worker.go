package prove

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
)

// WorkVerb is the verb with which prove starts itself as the process that performs a workload.
const WorkVerb = "prove-workload"

// A job is a workload. prepare creates what must exist before the tool starts, run is what the tool
// observes. Both run in one thread of a process of its own.
type job struct {
	prepare func(w *worker) error
	run     func(w *worker) error
	// second, if set, reads a second source before the workload, and returns a function that reads it afterwards.
	second func(w *worker) after
	// late, if set, completes the log when the tool has ended.
	late func(w *worker) error
}

// worker is the process that performs a workload.
type worker struct {
	n     int    // how often
	dir   string // a directory of its own
	facts facts
	log   log
	clean []func()

	inotify  int    // descriptor of "watch"
	terminal [2]int // both ends of "terminal"

	prepared int64 // time when the process was prepared
	runs     int64 // how often the thread had got a CPU by then

	common row // columns of the task, see begin
}

// factDenied is set if the workload lacks privileges.
const factDenied = "denied"

// facts are what the arguments of a tool can contain, such as {pid}.
type facts map[string]string

func (f facts) expand(s string) string {
	for k, v := range f {
		s = strings.ReplaceAll(s, "{"+k+"}", v)
	}
	return s
}

// Work performs the workload that args name: NAME COUNT DIRECTORY THREADNAME. It writes the facts, waits
// for a line, runs, writes the log, and ends with its input. So it ends when prove does, however that ends.
func Work(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 4 {
		return errors.New("want the name of a workload, a count, a directory and the name of the thread")
	}
	j, ok := jobs()[args[0]]
	n, err := strconv.Atoi(args[1])
	if !ok || err != nil {
		return fmt.Errorf("unknown workload %q", args)
	}
	debug.SetGCPercent(-1)
	w := &worker{n: n, dir: args[2], facts: facts{}, log: log{Unknown: map[string]string{}}}
	defer w.cleanUp()
	call := newThread()
	if err := call(func() error { return w.begin(args[3]) }); err != nil {
		return err
	}
	return w.serve(j, call, bufio.NewReader(in), json.NewEncoder(out))
}

// newThread returns a function that calls functions in a thread of their own. It is not the main thread, so
// that its TID differs from its PID, and does no input and output itself.
func newThread() func(func() error) error {
	calls, results := make(chan func() error), make(chan error)
	go serveThread(calls, results)
	return func(f func() error) error {
		calls <- f
		return <-results
	}
}

func serveThread(calls <-chan func() error, results chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go serveThread(calls, results)
		select {}
	}
	for f := range calls {
		results <- f()
	}
}

func (w *worker) serve(j job, call func(func() error) error, in *bufio.Reader, out *json.Encoder) error {
	if j.prepare != nil {
		if err := call(func() error { return j.prepare(w) }); err != nil {
			w.facts["error"] = err.Error()
			if errors.Is(err, unix.EPERM) {
				w.facts[factDenied] = "1"
			}
		}
	}
	w.prepared = now()
	_, _ = fmt.Sscan(w.taskFile("schedstat"), new(int64), new(int64), &w.runs)
	if err := out.Encode(w.facts); err != nil {
		return err
	}
	if _, err := in.ReadString('\n'); err != nil {
		return nil
	}
	offset, err := system.BootOffset()
	if err != nil {
		return err
	}
	compare := func() {}
	if j.second != nil {
		compare = j.second(w)
	}
	w.failed(call(func() error { return j.run(w) }))
	compare()
	w.setTimes(offset)
	w.forgetForeignIDs()
	if err := out.Encode(w.log); err != nil {
		return err
	}
	if _, err := in.ReadString('\n'); err != nil || j.late == nil {
		return nil
	}
	w.failed(j.late(w))
	if err := out.Encode(w.log); err != nil {
		return err
	}
	_, _ = in.ReadString('\n')
	return nil
}

// notHereError says why a workload is not possible on this machine, if that shows only while it runs.
type notHereError struct{ error }

// failed notes an error of the workload.
func (w *worker) failed(err error) {
	switch {
	case err == nil:
	case errors.As(err, new(notHereError)):
		w.log.NotHere = err.Error()
	default:
		w.log.Error = err.Error()
	}
}

func (w *worker) cleanUp() {
	for i := len(w.clean) - 1; i >= 0; i-- {
		w.clean[i]()
	}
	_ = os.RemoveAll(w.dir)
	leaveCgroup(filepath.Base(w.dir))
}

func (w *worker) later(f func()) { w.clean = append(w.clean, f) }

// begin names the thread, and sets the facts about the task.
func (w *worker) begin(name string) error {
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(ptr(name)), 0, 0, 0); err != nil {
		return fmt.Errorf("set the name of the thread: %w", err)
	}
	// The group of this thread differs from its user, so that a tool that confuses them is wrong. Without
	// the privilege they can be equal.
	const nobody = 65534
	_, _, _ = unix.RawSyscall(unix.SYS_SETRESGID, nobody, nobody, nobody)
	pid, tid := unix.Getpid(), unix.Gettid()
	w.facts["tid"], w.facts["pid"], w.facts["dir"], w.facts["comm"] = strconv.Itoa(tid), strconv.Itoa(pid), w.dir, name
	w.common = row{"pid": pid, "tid": tid, "uid": unix.Getuid(), "comm": name}
	if ids := cgroupIDs(); len(ids) > 0 {
		w.common["cgroup_id"] = row{"any": ids}
	}
	return w.netns()
}

// netns notes the network namespace of the process.
func (w *worker) netns() error {
	id, err := inodeOf("/proc/thread-self/ns/net")
	w.facts["netns"] = strconv.FormatUint(id, 10)
	return err
}

func (w *worker) path(name string) string { return filepath.Join(w.dir, name) }

// want notes a row that the tool must show, with the columns of the task.
func (w *worker) want(r row) {
	for k, v := range w.common {
		if _, ok := r[k]; !ok {
			r[k] = v
		}
	}
	w.log.Rows = append(w.log.Rows, r)
}

// sum notes a row of a table.
func (w *worker) sum(r row) { w.log.Rows = append(w.log.Rows, r) }

// histogram notes a histogram of durations, in us.
func (w *worker) histogram(key row, d durations) {
	const us = 1000.0
	total := d.total()
	key["count"], key["bucket_count"], key["buckets"] = d.n, d.n, consistent
	key["sum"] = between(float64(total["min"].(int64))/us, float64(d.sum)/us)
	key["max"] = between(float64(d.least)/measuring/us, float64(d.most)/us+rounding)
	w.sum(key)
}

func (w *worker) total(column string, want any, source string) {
	w.log.Totals = append(w.log.Totals, total{column, want, source})
}

func (w *worker) unknown(reason string, columns ...string) {
	for _, c := range columns {
		w.log.Unknown[c] = reason
	}
}

// Ranges of numbers.
func atMost[N number64](n N) row     { return row{"max": n} }
func atLeast[N number64](n N) row    { return row{"min": n} }
func between[N number64](a, b N) row { return row{"min": a, "max": b} }

type number64 interface {
	~int | ~int64 | ~uint64 | ~float64
}

// span is a time in which something happened, measured around it.
type span struct{ begin, end int64 }

// during measures the time of a call.
func during(f func()) span {
	begin := now()
	f()
	return span{begin, now()}
}

func (s span) ns() int64 { return s.end - s.begin }

// durations are times measured around calls.
type durations struct{ n, sum, least, most int64 }

func (d *durations) add(s span) {
	ns := s.ns()
	if d.n == 0 || ns < d.least {
		d.least = ns
	}
	d.n, d.sum, d.most = d.n+1, d.sum+ns, max(d.most, ns)
}

// measuring is how much longer the time around the shortest call is than the call itself, at most.
const measuring = 50

// total is the range of the sum of the calls themselves. The shortest call did not wait for a CPU, and is the
// measure of all: a wrong unit makes the sum smaller.
func (d *durations) total() row {
	return between(d.n*d.least/measuring, d.sum)
}

// now returns boot time, the clock of all durations of tools.
func now() int64 {
	ns, _ := system.BootNow()
	return int64(ns)
}

func inodeOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Ino, nil
}

// timed calls f, and returns a row with the time of the event, and with the greatest possible duration in
// the column that duration names.
func (w *worker) timed(duration string, f func()) row {
	s := during(f)
	r := row{"time": s}
	if duration != "" {
		r[duration] = atMost(s.ns())
	}
	return r
}

// slewed is the greatest difference between the offset of the clocks that a tool knows and the current one:
// a tool measures it once per second, and the wall clock is slewed by at most 0.05 %.
const slewed = 600_000

// steady is the change of the offset above which the clock is being set.
const steady = 10_000

// setTimes replaces the boot times of the log by wall times, the times of rows.
func (w *worker) setTimes(before int64) {
	after, err := system.BootOffset()
	isSteady := err == nil && before-after <= steady && after-before <= steady
	for _, r := range w.log.Rows {
		s, ok := r["time"].(span)
		switch {
		case ok && isSteady:
			r["time"] = between(s.begin+after-slewed, s.end+after+slewed)
		case ok:
			delete(r, "time")
			w.unknown("the wall clock was set during the proof", "time")
		}
	}
}

// Inode numbers of the initial namespaces.
const (
	initialPIDs  = 0xEFFFFFFC
	initialUsers = 0xEFFFFFFD
)

// forgetForeignIDs removes IDs that differ from those of the tools, which show the initial namespaces.
func (w *worker) forgetForeignIDs() {
	for path, initial := range map[string]uint64{"pid": initialPIDs, "user": initialUsers} {
		id, err := inodeOf("/proc/self/ns/" + path)
		if err == nil && id == initial {
			continue
		}
		for _, r := range w.log.Rows {
			for k := range r {
				if path == "pid" && (strings.HasSuffix(k, "pid") || strings.HasSuffix(k, "tid")) || path == "user" && k == "uid" {
					delete(r, k)
					w.unknown("this process is not in the initial "+path+" namespace", k)
				}
			}
		}
	}
}
