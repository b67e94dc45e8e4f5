package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestMain lets the test binary run loads, as the command does.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == loadArg:
		err = runLoad(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == tasksArg:
		err = runTasks(os.Args[2:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// short is the factor by which tests shorten the loads.
const short = 100

// inMachine is the path of the binary in a virtual machine of test/kernels.
const inMachine = "/test/corescope"

// oursOnly returns settings without peers: one round, or three in a virtual machine.
func oursOnly(t *testing.T) *settings {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Skipf("BPF_ENABLE_STATS is not supported by this kernel: %v", err)
	}
	t.Cleanup(func() { stats.Close() })
	if filepath.Dir(os.Args[0]) == filepath.Dir(inMachine) {
		return &settings{rounds: 3, ours: inMachine}
	}
	s := &settings{rounds: 1, ours: filepath.Join(t.TempDir(), "corescope")}
	build := exec.Command("go", "build", "-o", s.ours, "../../cmd/corescope")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return s
}

// shortSettings returns settings of one round, with the peers in the tree CORESCOPE_PEERS if it
// has them.
func shortSettings(t *testing.T) *settings {
	t.Helper()
	s := oursOnly(t)
	if s.ours == inMachine {
		t.Skip("virtual machines of test/kernels run only TestCPUs")
	}
	s.peers = os.Getenv("CORESCOPE_PEERS")
	if _, err := os.Stat(filepath.Join(s.peers, "usr/sbin/opensnoop-libbpf")); err != nil || s.peers == "" {
		t.Logf("running without peers: not found in CORESCOPE_PEERS=%q: %v", s.peers, err)
		s.peers = ""
		return s
	}
	if err := s.mount(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBench runs each benchmark once with a short load.
func TestBench(t *testing.T) {
	s := shortSettings(t)
	for _, b := range benchmarks {
		b.count = max(b.count/short, short)
		t.Run(b.name(), func(t *testing.T) {
			results := unpaced(t, &b, s)
			checkResults(t, results)
			if !b.isSecondary {
				checkReported(t, results)
			}
		})
	}
}

// unpaced runs the unpaced load of a benchmark.
func unpaced(t *testing.T, b *benchmark, s *settings) []result {
	t.Helper()
	m, err := newMeasurer(b, s)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	results, err := m.loaded(t.Context(), 0)
	if errors.Is(err, errUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// TestBase compares a binary with itself, as BASE does with another one.
func TestBase(t *testing.T) {
	s := oursOnly(t)
	if s.ours == inMachine {
		t.Skip("virtual machines of test/kernels run only TestCPUs")
	}
	s.base = s.ours
	b := benchmark{tool: "syscount", load: "calls", unit: "call", count: 10_000, isSecondary: true}
	if r := unpaced(t, &b, s)[0]; r.Ours <= 0 || r.Peer <= 0 || r.Ratio <= 0 || s.peer() != baseName {
		t.Errorf("compared with %s: %+v, want a time of both", s.peer(), r)
	}
}

func checkResults(t *testing.T, results []result) {
	t.Helper()
	for _, r := range results {
		t.Logf("%s: %.4g %s, peer %.4g %s", r.Figure, r.Ours, r.Unit, r.Peer, r.Note)
		// With few rows, the CPU time may be below the resolution of the clock.
		if r.Ours <= 0 && !strings.HasPrefix(r.Figure, "CPU time") {
			t.Errorf("%s is %g", r.Figure, r.Ours)
		}
	}
}

// checkReported checks that all events of a load are reported or counted as lost.
func checkReported(t *testing.T, results []result) {
	t.Helper()
	for _, r := range results {
		if strings.HasPrefix(r.Figure, "events reported") && (r.met() == "no" || strings.Contains(r.Note, "neither")) {
			t.Errorf("%s: %g %%: %s", r.Figure, r.Ours, r.Note)
		}
	}
}

// TestFigures measures the figures that TestBench does not cover, for one tool.
func TestFigures(t *testing.T) {
	s := shortSettings(t)
	b := benchmark{tool: "opensnoop", load: "opens", unit: "open", count: 1_000, rows: 1}
	m, err := newMeasurer(&b, s)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	ctx := t.Context()
	reported, err := m.outputs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	start, err := m.starts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	checkResults(t, append(reported, start))
	checkReported(t, reported)
	spin := sampled[0]
	spin.count = short
	sampler := &measurer{benchmark: &spin, subjects: []subject{spin.ours(s)}, rounds: 1, dir: m.dir}
	share, err := sampler.share(ctx)
	if err != nil {
		t.Fatal(err)
	}
	checkResults(t, share)
	ns, err := m.withTasks(ctx, fewTasks)
	if err != nil || ns <= 0 {
		t.Errorf("with %d tasks: %g ns, %v", fewTasks, ns, err)
	}
}

// TestCPUs measures the BPF run time per event of each tool and stores it as a test attribute.
// In a virtual machine of test/kernels, scaleCPUs reads the attributes. Tools and loads run on
// one CPU, so that the load is the same on any number of CPUs: otherwise the scheduler places
// the two threads of a round trip on different CPUs, which doubles the context switches, and
// the time in which other CPUs are emulated counts as run time of an interrupted program.
func TestCPUs(t *testing.T) {
	s := oursOnly(t)
	t.Attr(cpusAttr, strconv.Itoa(runtime.NumCPU()))
	runtime.LockOSThread() // never unlocked: the thread keeps the affinity
	var first unix.CPUSet
	first.Set(0)
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		t.Fatal(err)
	}
	for _, b := range emulated {
		if s.ours != inMachine {
			b.count = short
		}
		m, err := newMeasurer(&b, s)
		if err != nil {
			t.Fatal(err)
		}
		defer m.close()
		perEvent, err := m.perEvent(t.Context())
		if err != nil || perEvent <= 0 {
			t.Fatalf("%s: %g for an event, %v", b.tool, perEvent, err)
		}
		t.Attr(b.tool, fmt.Sprint(perEvent))
	}
}

// The stored results of a virtual machine are valid if they are complete and the number of CPUs
// matches.
func TestFiguresOfMachine(t *testing.T) {
	kept := `{"Checks": [{"Attrs": {"cpus": "2", "opensnoop": "100", "execsnoop": "5", "tcplife": "5", "runqlat": "5", "biolatency": "5"}}]}`
	few, err := figures([]byte(kept), 2)
	if err != nil {
		t.Fatal(err)
	}
	many, err := figures([]byte(strings.NewReplacer(`"2"`, `"8"`, "100", "120").Replace(kept)), 8)
	if err != nil {
		t.Fatal(err)
	}
	all := cpuResults(few, many, nil)
	if r := all[0]; len(all) != len(emulated) || r.Ours != 1.2 || r.met() != "no" || all[1].met() != "yes" {
		t.Errorf("%+v", all)
	}
	for _, r := range cpuResults(few, nil, errUnavailable) {
		if r.met() != "" || r.cells()[3] != "" || !strings.Contains(r.Note, errUnavailable.Error()) {
			t.Errorf("without virtual machines: %+v: cells %q, met %q", r, r.cells(), r.met())
		}
	}
	for _, bad := range []string{``, `{}`, strings.Replace(kept, "100", "0", 1), strings.Replace(kept, "opensnoop", "other", 1)} {
		if got, err := figures([]byte(bad), 2); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
	if got, err := figures([]byte(kept), 8); err == nil {
		t.Errorf("results for 2 CPUs are accepted for 8: %v", got)
	}
}

func TestMet(t *testing.T) {
	for _, tt := range []struct {
		result
		want string
	}{
		{result{Ours: 1, Peer: 2, Ratio: 0.5, Target: 0.7}, "yes"},
		{result{Ours: 2, Peer: 2, Ratio: 1, Target: 0.7}, "no"},
		{result{Ours: 2, Target: 0.7}, ""},
		{result{Ours: 2, Limit: 1}, "no"},
		{result{Ours: 99, Least: 100}, "no"},
		{result{Ours: 100, Least: 100}, "yes"},
		{result{Ours: 100}, ""},
	} {
		if got := tt.met(); got != tt.want {
			t.Errorf("%+v: met is %q, want %q", tt.result, got, tt.want)
		}
	}
}

func TestReportedResult(t *testing.T) {
	m := &measurer{benchmark: &benchmark{rows: 1}}
	rows := func(rows, lost int) sample { return sample{rows: rows, lost: lost, load: loadResult{Count: 10}} }
	for _, tt := range []struct {
		input sample
		met   string
		noted bool
	}{
		{rows(10, 0), "yes", false},
		{rows(7, 3), "", true},
		{rows(7, 0), "no", true},
		{sample{rows: 7, hidden: 3, load: loadResult{Count: 10}}, "", true},
		{sample{rows: 7, hidden: 2, load: loadResult{Count: 10}}, "no", true},
	} {
		r := m.reportedResult("events reported", [2][]sample{{tt.input}, nil})
		if r.met() != tt.met || (r.Note != "") != tt.noted {
			t.Errorf("%d rows, %d lost: %+v", tt.input.rows, tt.input.lost, r)
		}
	}
}
