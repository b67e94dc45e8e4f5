package prove

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
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

// build builds the program and returns its path.
func build(t *testing.T) string {
	t.Helper()
	tooltest.Root(t)
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

// TestInterrupt stops prove while it works, and looks for what it left.
func TestInterrupt(t *testing.T) {
	program := build(t)
	dir := t.TempDir()
	cmd := exec.Command(program, "prove", "opensnoop", "execsnoop", "tcplife")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
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
			t.Fatalf("prove ended: %s", &out)
		default:
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-exited
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, &out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("directories left: %v %v", left, err)
	}
	if left := cgroups(names); len(left) > 0 {
		t.Errorf("cgroups left: %q", left)
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
	r := Run{Tools: []string{"opensnoop", "javagc"}, DryRun: true, Out: &out, Err: &out}
	ok, err := r.Do(t.Context())
	if !ok || err != nil || !strings.Contains(out.String(), "corescope opensnoop --output json") || !strings.Contains(out.String(), fmt.Sprintf("javagc: %s", NotProvable)) {
		t.Errorf("%v %v: %s", ok, err, &out)
	}
}
