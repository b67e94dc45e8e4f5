package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestMain makes the test's binary a load, as the command is.
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

// short is how much of a load a test makes.
const short = 100

// inMachine is the binary in a machine of test/kernels, where it lies beside the test.
const inMachine = "/test/corescope"

// oursOnly are the settings of one short round without peers, or of several in a machine.
func oursOnly(t *testing.T) *settings {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Skipf("the kernel does not measure programs: %v", err)
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

// shortSettings are those of one short round, without peers, or with those that the tree
// CORESCOPE_PEERS has.
func shortSettings(t *testing.T) *settings {
	t.Helper()
	s := oursOnly(t)
	if s.ours == inMachine {
		t.Skip("a machine of test/kernels is for TestCPUs alone")
	}
	s.peers = os.Getenv("CORESCOPE_PEERS")
	if _, err := os.Stat(filepath.Join(s.peers, "usr/sbin/opensnoop-libbpf")); err != nil || s.peers == "" {
		t.Logf("without peers: CORESCOPE_PEERS=%q has none: %v", s.peers, err)
		s.peers = ""
		return s
	}
	if err := s.mount(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBench runs each benchmark once, with a short load.
func TestBench(t *testing.T) {
	s := shortSettings(t)
	for _, b := range benchmarks {
		b.count = max(b.count/short, short)
		t.Run(b.name(), func(t *testing.T) {
			m, err := newMeasurer(&b, s)
			if err != nil {
				t.Fatal(err)
			}
			defer m.close()
			results, err := m.loaded(t.Context(), 0)
			if errors.Is(err, errNotHere) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkResults(t, results)
			if !b.isFurther {
				checkSeen(t, results)
			}
		})
	}
}

func checkResults(t *testing.T, results []result) {
	t.Helper()
	for _, r := range results {
		t.Logf("%s: %.4g %s, peer %.4g %s", r.Figure, r.Ours, r.Unit, r.Peer, r.Note)
		// Tools of few rows may take less time than the clock of processes has.
		if r.Ours <= 0 && !strings.HasPrefix(r.Figure, "user space") {
			t.Errorf("%s is %g", r.Figure, r.Ours)
		}
	}
}

// checkSeen demands all rows of a load, or word of those that are missing.
func checkSeen(t *testing.T, results []result) {
	t.Helper()
	for _, r := range results {
		if strings.HasPrefix(r.Figure, "seen") && (r.met() == "no" || strings.Contains(r.Note, "said nothing")) {
			t.Errorf("%s: %g %%: %s", r.Figure, r.Ours, r.Note)
		}
	}
}

// TestFigures takes those figures of one tool that no load alone gives.
func TestFigures(t *testing.T) {
	s := shortSettings(t)
	b := benchmark{tool: "opensnoop", load: "opens", unit: "open", count: 1_000, rows: 1}
	m, err := newMeasurer(&b, s)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen, err := m.outputs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	start, err := m.starts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	checkResults(t, append(seen, start))
	checkSeen(t, seen)
	spin := sampled[0]
	spin.count = short
	sampler := &measurer{benchmark: &spin, subjects: []subject{spin.ours(s)}, rounds: 1, dir: m.dir}
	share, err := sampler.share(ctx)
	if err != nil {
		t.Fatal(err)
	}
	checkResults(t, share)
	ns, err := m.besideTasks(ctx, fewTasks)
	if err != nil || ns <= 0 {
		t.Errorf("beside %d tasks: %g ns, %v", fewTasks, ns, err)
	}
}

// TestCPUs takes one figure of each tool and tells it as an attribute, which in a machine
// of test/kernels is for scaleCPUs. Tools and loads keep to one CPU, so that a load is the
// same for the kernel however many there are: on eight CPUs the scheduler parts the two
// threads of a round trip, which then has twice the switches, and turns of other CPUs count
// as time of a program that they come amidst.
func TestCPUs(t *testing.T) {
	s := oursOnly(t)
	t.Attr(cpusAttr, strconv.Itoa(runtime.NumCPU()))
	runtime.LockOSThread() // and never unlock it
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

// What a machine kept is figures, if it is whole and of as many CPUs as were asked for.
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
	for _, r := range cpuResults(few, nil, errNotHere) {
		if r.met() != "" || r.cells()[3] != "" || !strings.Contains(r.Note, errNotHere.Error()) {
			t.Errorf("without machines: %+v is %q, %q", r, r.cells(), r.met())
		}
	}
	for _, bad := range []string{``, `{}`, strings.Replace(kept, "100", "0", 1), strings.Replace(kept, "opensnoop", "other", 1)} {
		if got, err := figures([]byte(bad), 2); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
	if got, err := figures([]byte(kept), 8); err == nil {
		t.Errorf("2 CPUs for 8: %v", got)
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
			t.Errorf("%+v is met: %q, want %q", tt.result, got, tt.want)
		}
	}
}

func TestSeenResult(t *testing.T) {
	m := &measurer{benchmark: &benchmark{rows: 1}}
	of := func(rows, lost int) sample { return sample{rows: rows, lost: lost, load: loadResult{Count: 10}} }
	for _, tt := range []struct {
		one   sample
		met   string
		noted bool
	}{
		{of(10, 0), "yes", false},
		{of(7, 3), "", true},
		{of(7, 0), "no", true},
		{sample{rows: 7, hidden: 3, load: loadResult{Count: 10}}, "", true},
		{sample{rows: 7, hidden: 2, load: loadResult{Count: 10}}, "no", true},
	} {
		r := m.seenResult("seen", [2][]sample{{tt.one}, nil})
		if r.met() != tt.met || (r.Note != "") != tt.noted {
			t.Errorf("%d rows, %d lost: %+v", tt.one.rows, tt.one.lost, r)
		}
	}
}
