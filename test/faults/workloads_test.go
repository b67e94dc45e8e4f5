package faults

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// A workload is the load for one tool.
type workload struct {
	// place creates the file or object with which the load executes its jobs.
	place func(t testing.TB) string
	// args makes the tool show this load only.
	args func(l *load) []string
	// job is executed once per row or value; n is how often, unless a test needs more.
	job string
	n   int
	// storm is a job that sends more events than the buffers hold, and storms how often it is
	// executed. If fits is set, the events fit in the buffers.
	storm  string
	storms int
	fits   bool
	// column is the column of a table that counts the job.
	column string
	// left is set if the number of events is how often the load's thread left a CPU in that way
	// between two blocking reads: that is how often it waited for a CPU, or to be woken.
	left leaving
	// begun is the number of events that the tool does not report because they began before it
	// started.
	begun int
	// first is a job that the load executes once before a tool starts, and firsts how often.
	first  string
	firsts int
	// listed returns how many rows a list must have, according to /proc.
	listed func(*load, testing.TB) int
	// samples is set if the number of events is how often a timer of that frequency, in Hz,
	// interrupted the load's thread.
	samples int
	// strays is the percentage of events that interrupts of the load's thread can add or remove.
	strays int
	// machine is set if the tool observes the whole machine, so that the number of its events is not
	// that of the load.
	machine bool
	// tracefs is the exit code without tracefs, of a tool whose arguments need it.
	tracefs int
	// btf is what the message names if the tool does not run without BTF in the kernel itself, "iterator"
	// by default.
	btf string
}

// workloads returns the workload of each tool. A new tool needs an entry, and possibly a new job.
func workloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	all := map[string]workload{
		"argdist": {
			place: library("libprobe.so.1", "probe"), job: "probe", n: 200, storm: "probe", storms: 100_000, column: "count",
			args: func(l *load) []string { return append(byPID()(l), "-C", "p:"+l.place+":probe()") },
		},
		"bashreadline": {
			place: library("libreadline.so.8", "readline"), job: "type", n: 200, storm: "type", storms: 100_000,
			args: byPID("--any"),
		},
		"bpflist": {
			place: missing, job: "nothing", storm: "nothing", first: "keep maps", firsts: 500, listed: links("anon_inode:bpf-map"),
			args: byPID("-M"),
		},
		"bpftop": {
			place: bpfProgram, job: "run program", n: 200, storm: "run program", storms: 20_000, column: "runs",
			args: func(l *load) []string { return []string{"--filter", "id == " + l.place} },
		},
		"cachestat": {
			place: loopDisk, job: "miss", n: 300, storm: "miss", storms: 5000, column: "misses",
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid)} },
		},
		"files": {
			place: file, job: "nothing", storm: "nothing", first: "keep files", firsts: 900, listed: links(""), args: byPID("-o"),
		},
		"javagc": {
			place: jvm, job: "collect", n: 200, storm: "collect", storms: 100_000, args: byPID(),
		},
		"maps": {
			place: missing, job: "nothing", storm: "nothing", first: "keep areas", firsts: 1000, listed: areas, args: byPID(),
		},
		"profile": {
			place: missing, job: "spin", n: 1000, storm: "spin", storms: 2000, fits: true, samples: 99, column: "count",
			args: func(l *load) []string { return []string{"-F", "99", "--tid", strconv.Itoa(l.pid)} },
		},
		"sockets": {
			place: missing, job: "nothing", storm: "nothing", first: "keep sockets", firsts: 900, listed: links("socket:"), args: byPID("-u"),
		},
		"tasks": {
			place: missing, job: "nothing", storm: "nothing", first: "crowd", firsts: 300, listed: threads, args: byPID("-T"),
		},
		"tcpdrop": {
			place: missing, job: "refuse", n: 100, storm: "refuse", storms: 60_000, first: "own network",
			args: func(l *load) []string { return []string{"--pid-netns", strconv.Itoa(l.pid)} },
		},
		"tcpretrans": {
			place: missing, job: "lose", n: 10, storm: "lose", storms: 100, fits: true, first: "own network", args: byPID(),
		},
		"biolatency": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000,
			args: func(l *load) []string { return append(byPID()(l), "-d", l.place) },
		},
		"biosnoop": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 100_000,
			args: func(l *load) []string { return append(byPID()(l), "-d", l.place) },
		},
		"biostacks": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000, fits: true,
			args: func(l *load) []string { return append(byPID()(l), "-d", l.place) },
		},
		"biotop": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000, column: "ios",
			args: func(l *load) []string { return append(byPID()(l), "-d", l.place) },
		},
		"execsnoop": {
			place: program, job: "exec", n: 50, storm: "execbig", storms: 600,
			args: func(l *load) []string { return []string{"-P", strconv.Itoa(l.pid)} },
		},
		"filetop": {
			place: file, job: "pread", n: 1000, storm: "pread", storms: 100_000, column: "reads",
			args: func(l *load) []string { return append(byPID()(l), "--directory", filepath.Dir(l.place)) },
		},
		"fsdist": {
			place: file, job: "pread", n: 1000, storm: "pread", storms: 100_000,
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid), "--operation", "read"} },
		},
		"fsslower": {
			place: file, job: "pread", n: 1000, storm: "pread", storms: 100_000,
			args: func(l *load) []string {
				return []string{"--tid", strconv.Itoa(l.pid), "--operation", "read", "-m", "0"}
			},
		},
		"funccount": {
			place: library("libprobe.so.1", "probe"), job: "probe", n: 200, storm: "probe", storms: 100_000, column: "count",
			args: func(l *load) []string { return append(byPID()(l), l.place+":probe") },
		},
		"funclatency": {
			place: library("libprobe.so.1", "probe"), job: "probe", n: 200, storm: "probe", storms: 100_000,
			args: func(l *load) []string { return append(byPID()(l), l.place+":probe") },
		},
		"gethostlatency": {
			place: library("libc.so.6", "getaddrinfo"), job: "lookup", n: 200, storm: "lookup", storms: 100_000,
			args: byPID(),
		},
		"offcputime": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, fits: true, left: inAnyWay, begun: 1, column: "count",
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid)} },
		},
		"offwaketime": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, fits: true, left: inAnyWay, begun: 1, column: "count",
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid)} },
		},
		"memleak": {
			place: library("libc.so.6", "malloc"), job: "malloc", n: 200, storm: "malloc", storms: 100_000, args: byPID("-t"),
		},
		"opensnoop": {
			place: missing, job: "open", n: 1000, storm: "open", storms: 150_000,
			args: func(l *load) []string { return append(byPID()(l), "--path", l.place) },
		},
		"runqlat": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, left: inAnyWay,
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid)} },
		},
		"sslsniff": {
			place: library("libssl.so.3", "SSL_write"), job: "encrypt", n: 200, storm: "encrypt", storms: 10_000, fits: true,
			args: byPID(),
		},
		"stackcount": {
			place: library("libprobe.so.1", "probe"), job: "probe", n: 200, storm: "probe", storms: 100_000, fits: true, column: "count",
			args: func(l *load) []string { return append(byPID()(l), l.place+":probe") },
		},
		"syscount": {
			place: missing, job: "getppid", n: 1000, storm: "getppid", storms: 200_000, column: "count",
			args: byPID("--syscall", "getppid"),
		},
		"tcpaccept": {
			place: missing, job: "connect", n: 100, storm: "connect", storms: 5000, fits: true, args: byPID(),
		},
		"tcpconnect": {
			place: missing, job: "connect", n: 100, storm: "refuse", storms: 20_000, fits: true, args: byPID(),
		},
		"tcplife": {
			place: missing, job: "ends", n: 100, storm: "refuse", storms: 60_000, args: byPID(),
		},
		"tcptop": {
			place: missing, job: "send", n: 500, storm: "send", storms: 50_000, column: "tx_bytes", args: byPID(),
		},
		"trace": {
			place: library("libprobe.so.1", "probe"), job: "probe", n: 200, storm: "probe", storms: 220_000,
			args: func(l *load) []string { return append(byPID()(l), "p:"+l.place+":probe") },
		},
		"vfsstat": {
			place: missing, job: "mkdir", n: 500, storm: "mkdir", storms: 20_000, column: "mkdirs", args: byPID(),
		},
		"wakeuptime": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, fits: true, left: toSleep, begun: 1, column: "count",
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid)} },
		},
		"tcpstates": {
			place: missing, job: "states", n: 100, storm: "states", storms: 40_000,
			args: byPID("--remoteport", strconv.Itoa(refusedPort)),
		},
	}
	maps.Copy(all, blockWorkloads())
	maps.Copy(all, irqWorkloads())
	maps.Copy(all, schedulerWorkloads())
	maps.Copy(all, networkWorkloads())
	maps.Copy(all, packetWorkloads())
	maps.Copy(all, memoryWorkloads())
	maps.Copy(all, fileWorkloads())
	maps.Copy(all, processWorkloads())
	maps.Copy(all, modifyWorkloads())
	maps.Copy(all, tlsWorkloads())
	maps.Copy(all, functionWorkloads())
	maps.Copy(all, languageWorkloads())
	maps.Copy(all, probesWorkloads())
	maps.Copy(all, dbWorkloads())
	return all
}

// program returns the name of a program that does nothing.
func program(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fault")
	if err := os.Symlink("/bin/true", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func missing(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "missing")
}

func file(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEachToolHasWorkload(t *testing.T) {
	all := workloads()
	for _, tl := range tools.All() {
		w := all[tl.Name]
		if w.job == "" || jobs()[w.job] == nil || jobs()[w.storm] == nil || w.first != "" && jobs()[w.first] == nil {
			t.Errorf("%s has no workload: it needs a line in workloads()", tl.Name)
		}
		delete(all, tl.Name)
	}
	for name := range all {
		t.Errorf("workload for unknown tool %s", name)
	}
}

// isList reports whether the tool lists what the load holds, and ends by itself.
func (w *workload) isList() bool { return w.listed != nil }

// subject is a tool under test with its own load.
type subject struct {
	*testing.T
	*load
	workload
	tool *tool.Tool
	perf bool // events are sent through perf buffers
}

// eachTool runs test for these tools in parallel.
func eachTool(t *testing.T, of []*tool.Tool, test func(s *subject)) {
	t.Helper()
	skipShort(t)
	for _, tl := range of {
		each(t, tl.Name, tl, false, test)
	}
}

// skipShort skips tests that take long and need no particular kernel, in virtual machines of
// test/kernels.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: takes long and does not depend on the kernel")
	}
}

// eachBuffer is like eachTool, and repeats the test with perf buffers for tools that send events.
func eachBuffer(t *testing.T, of []*tool.Tool, test func(s *subject)) {
	t.Helper()
	eachTool(t, of, test)
	eachPerf(t, of, test)
}

// eachPerf runs test with perf buffers, for those tools that send events.
func eachPerf(t *testing.T, of []*tool.Tool, test func(s *subject)) {
	t.Helper()
	skipShort(t)
	for _, tl := range of {
		if sendsEvents(t, tl) {
			each(t, tl.Name+" perf", tl, true, test)
		}
	}
}

func each(t *testing.T, name string, tl *tool.Tool, perf bool, test func(s *subject)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		slots <- struct{}{}
		defer func() { <-slots }()
		test(newSubject(t, tl, perf))
	})
}

// slots limits how many tools run at the same time: each event of a load also runs the programs of
// all other tools that are attached, so the cost would grow with the square of their number.
var slots = make(chan struct{}, max(8, 2*runtime.NumCPU()))

func newSubject(t *testing.T, tl *tool.Tool, perf bool) *subject {
	t.Helper()
	tooltest.Root(t)
	w, ok := workloads()[tl.Name]
	if !ok {
		t.Fatal("no workload")
	}
	if w.tracefs > 0 || tooltest.NeedsTracefs(t, tl) {
		tooltest.Tracefs(t)
	}
	l := newLoad(t, w.place(t))
	if w.first != "" {
		l.do(t, w.first, w.firsts)
	}
	l.do(t, w.job, 0) // loads its library
	return &subject{t, l, w, tl, perf}
}

func sendsEvents(t testing.TB, tl *tool.Tool) bool {
	t.Helper()
	spec, err := tl.Object()
	if err != nil {
		t.Fatal(err)
	}
	return spec.Maps["events"] != nil
}

// happened is how often something happened (n), and how many of these may be unobserved (hidden).
type happened struct{ n, hidden int }

func (h *happened) add(more happened) { h.n, h.hidden = h.n+more.n, h.hidden+more.hidden }

// usual executes the usual job of the workload.
func (s *subject) usual() happened { return s.does(s.job, s.n) }

// storms executes the job that exceeds the buffers.
func (s *subject) storms() happened { return s.does(s.storm, s.workload.storms) }

func (s *subject) does(job string, times int) happened {
	s.Helper()
	if s.samples > 0 {
		stop := tooltest.Samples(s, s.load.pid, s.samples)
		s.do(s, job, times)
		// The tool's timers expire at other times than those of tooltest.Samples: for each time
		// slice, the counts can differ by one.
		n := stop()
		return happened{n, 3 + n/2}
	}
	if s.machine {
		s.do(s, job, times)
		return happened{0, math.MaxInt32}
	}
	left, hidden := s.load.left(s, s.workload.left), tooltest.HiddenRuns()
	n := s.do(s, job, times)
	if s.workload.left != notAtAll {
		n = s.load.left(s, s.workload.left) - left
	}
	return happened{n, tooltest.HiddenRuns() - hidden + s.begun + n*s.strays/100}
}
