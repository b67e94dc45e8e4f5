package prove

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// build builds the program and returns its path. In virtual machines there is one.
func build(t *testing.T) string {
	t.Helper()
	tooltest.Root(t)
	if built := os.Getenv("CORESCOPE"); built != "" {
		return built // suites run once in a machine, and short
	}
	tooltest.AnyAttachType(t)
	path := filepath.Join(t.TempDir(), "corescope")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", path, "github.com/corescope/corescope/cmd/corescope")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// report runs prove and returns its report and exit code.
func report(t *testing.T, program string, args ...string) (Report, int) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"prove", "--json"}, args...)...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, _ := cmd.Output()
	var r Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("prove %q: %v: %s", args, err, &errOut)
	}
	return r, cmd.ProcessState.ExitCode()
}

// check fails the test if a tool is contradicted, or not provable for a reason that is not true.
func check(t *testing.T, program string, r Report, code int) {
	t.Helper()
	if code != 0 || r.Contradicted {
		t.Errorf("exit code %d, contradicted %v, want 0 and false", code, r.Contradicted)
	}
	for _, tool := range r.Tools {
		switch {
		case tool.Result == Contradicted:
			t.Errorf("%s", tool.text(false))
		case tool.Result == Proved, proofOf(tool.Tool) == nil && tool.Reason != "":
		case strings.HasPrefix(tool.Reason, errNotRunning.Error()):
			if exec.Command(program, "doctor", tool.Tool).Run() == nil {
				t.Errorf("%s: %s, but doctor says that it runs", tool.Tool, tool.Reason)
			}
		case strings.HasPrefix(tool.Reason, "events were lost"), strings.HasPrefix(tool.Reason, "the workload cannot run here"):
			t.Logf("%s: %s", tool.Tool, tool.Reason)
		default:
			t.Errorf("%s: %s: %s", tool.Tool, tool.Result, tool.Reason)
		}
	}
}

func TestProve(t *testing.T) {
	program := build(t)
	r, code := report(t, program)
	check(t, program, r, code)
	const tools = 100
	if len(r.Tools) < tools {
		t.Errorf("%d tools in the report, want all", len(r.Tools))
	}
}

// TestTwoAtOnce has two runs that must not see each other.
func TestTwoAtOnce(t *testing.T) {
	program := build(t)
	var done sync.WaitGroup
	for range 2 {
		done.Go(func() {
			r, code := report(t, program, "tcplife", "tcpdrop", "dnssnoop", "execsnoop", "opensnoop", "vfsstat")
			check(t, program, r, code)
		})
	}
	done.Wait()
}

// TestContradicted changes what the workload says.
func TestContradicted(t *testing.T) {
	program := build(t)
	const column, other = "path", "/another"
	v := Prover{Program: program, Distort: func(_ string, rows []map[string]any) { rows[len(rows)-1][column] = other }}
	for _, name := range []string{"opensnoop", "statsnoop"} {
		got := v.Tool(t.Context(), name)
		if got.Result != Contradicted {
			t.Errorf("%s: %s %s, want contradicted", name, got.Result, got.Reason)
		}
		for _, c := range got.Columns {
			if want := c.Column == column; want != (c.Result == Contradicted) {
				t.Errorf("%s: %s", name, c.text())
			}
			if c.Column == column && !strings.Contains(c.Want, other) {
				t.Errorf("%s: want %s, expected %s", name, c.Want, other)
			}
		}
	}
}

// TestInterrupt stops prove while it works. It must print what it has proved, and leave nothing.
func TestInterrupt(t *testing.T) {
	program := build(t)
	dir := t.TempDir()
	// The first tool has no proof, so that a result exists when the first workload starts.
	cmd := exec.Command(program, "prove", "--json", "javagc", "opensnoop", "execsnoop", "tcplife")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	var names []string
	for len(names) == 0 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		select {
		case <-exited:
			t.Fatalf("prove ended: %s", &errOut)
		default:
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-exited
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(errOut.String(), "interrupted after") {
		t.Errorf("exit code %d, want 1: %s", code, &errOut)
	}
	var r Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.Interrupted || r.Contradicted || len(r.Tools) < 2 || r.Tools[0].Tool != "javagc" {
		t.Errorf("report: %v: %s", err, &out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("directories left: %v %v", left, err)
	}
	if left := cgroups(names); len(left) > 0 {
		t.Errorf("cgroups left: %q", left)
	}
}

// copied returns the path of a copy of a program in dir, which all users can execute.
func copied(t *testing.T, program, dir string) string {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "corescope")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestNotPermitted runs prove without privileges.
func TestNotPermitted(t *testing.T) {
	program := build(t)
	const nobody, notPermitted = 65534, 3
	dir := t.TempDir()
	program = copied(t, program, dir)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for _, tools := range [][]string{{"opensnoop", "javagc"}, {"tcplife"}} {
		cmd := exec.Command(program, append([]string{"prove", "--json"}, tools...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, _ := cmd.Output()
		var r Report
		if err := json.Unmarshal(out, &r); err != nil || len(r.Tools) != len(tools) || r.Tools[0].Result != NotProvable {
			t.Errorf("%q: report: %v: %s", tools, err, out)
		}
		if code := cmd.ProcessState.ExitCode(); code != notPermitted || !strings.Contains(errOut.String(), "not permitted: 1 of") {
			t.Errorf("%q: exit code %d, want %d: %s", tools, code, notPermitted, &errOut)
		}
	}
}

// TestStats checks the laws on real runs.
func TestStats(t *testing.T) {
	program := build(t)
	want := map[string][]string{
		"execsnoop": {lawRuns, lawHits}, "pidpersec": {lawHits}, "naptime": {lawDurations, lawRuns}, "tcptracer": {lawRuns, lawPairs},
		"shmsnoop": {lawPairs}, "fsdist": {lawDurations},
	}
	r, code := report(t, program, append([]string{"--stats"}, slices.Sorted(maps.Keys(want))...)...)
	check(t, program, r, code)
	for _, tool := range r.Tools {
		if tool.Result != Proved {
			continue // check has judged the reason
		}
		for _, law := range want[tool.Tool] {
			if tool.Stats == nil {
				t.Errorf("%s: no laws", tool.Tool)
				break
			}
			if c := columnOf(t, tool.Stats.Laws, law); c.Result != Proved && tool.Stats.Lost == 0 {
				t.Errorf("%s: %+v", tool.Tool, c)
			}
		}
	}
}

// cgroups returns the cgroups with these names.
func cgroups(names []string) []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && slices.Contains(names, filepath.Base(path)) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// TestDryRun checks that nothing runs.
func TestDryRun(t *testing.T) {
	var out bytes.Buffer
	r := Run{Tools: []string{"opensnoop", "javagc", "exitsnoop"}, DryRun: true, Out: &out, Err: &out, Prover: Prover{Stats: true}}
	ok, err := r.Do(t.Context())
	if !ok || err != nil || !strings.Contains(out.String(), "corescope opensnoop --output json") || !strings.Contains(out.String(), fmt.Sprintf("javagc: %s", NotProvable)) ||
		!strings.Contains(out.String(), "again; observed with: corescope exitsnoop --output json --stats -T\n") {
		t.Errorf("%v %v: %s", ok, err, &out)
	}
}
