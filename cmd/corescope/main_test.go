package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// built makes the binary as `make` does, and returns its path.
func built(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corescope")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// size is the binary's, in MB. The tools' names are symbolic links to it.
func size(t testing.TB) float64 {
	t.Helper()
	st, err := os.Stat(built(t))
	if err != nil {
		t.Fatal(err)
	}
	return float64(st.Size()) / (1 << 20)
}

func TestSize(t *testing.T) {
	const base, each = 9, 0.15 // MB, of Go and of a tool
	limit := base + each*float64(len(tools.All()))
	if mb := size(t); mb >= limit {
		t.Errorf("the binary has %.1f MB, %.1f are enough", mb, limit)
	}
}

// BenchmarkSize is how large one binary with all tools is.
func BenchmarkSize(b *testing.B) {
	var mb float64
	for b.Loop() {
		mb = size(b)
	}
	b.ReportMetric(mb, "MB")
}

func TestNames(t *testing.T) {
	path := built(t)
	for _, name := range []string{"opensnoop", "bpf-opensnoop", "opensnoop-libbpf", "opensnoop-bpfcc"} {
		link := filepath.Join(filepath.Dir(path), name)
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(link, "--help").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "opensnoop: ") {
			t.Errorf("%s --help: %v: %.80q", name, err, out)
		}
	}
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"version"}, 0}, {[]string{"list"}, 0}, {[]string{"opensnoop", "--help"}, 0}, {[]string{"nosuch"}, 2}, {nil, 2},
	} {
		cmd := exec.Command(path, tt.args...)
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != tt.code {
			t.Errorf("corescope %q: %v, want exit code %d", tt.args, err, tt.code)
		}
	}
}

// BenchmarkFirstRow is the time from the start of the program to the first exec that it
// shows, with one process after another being run.
func BenchmarkFirstRow(b *testing.B) {
	tooltest.Root(b)
	path := built(b)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				exec.Command("/bin/true").Run()
			}
		}
	}()
	for b.Loop() {
		row, end := start(b, path, "execsnoop", "--no-header", "--comm", "true")
		if _, err := row.ReadString('\n'); err != nil {
			b.Fatal(err)
		}
		end()
	}
}

// BenchmarkLoneEvent is the time from an exec to its row on a pipe, with nothing else
// going on that the tool could see.
func BenchmarkLoneEvent(b *testing.B) {
	tooltest.Root(b)
	path := built(b)
	row, end := start(b, path, "execsnoop", "--comm", "true")
	defer end()
	if _, err := row.ReadString('\n'); err != nil { // the header, once it is ready
		b.Fatal(err)
	}
	for b.Loop() {
		begin := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		if _, err := row.ReadString('\n'); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(begin).Microseconds())/1000, "ms/row")
	}
}

func start(b *testing.B, path string, args ...string) (rows *bufio.Reader, end func()) {
	b.Helper()
	cmd := exec.Command(path, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return bufio.NewReader(out), func() {
		cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	}
}
