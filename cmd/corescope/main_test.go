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
)

// buildBinary builds the binary as `make` does and returns its path.
func buildBinary(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corescope")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// size returns the size of the binary in MiB.
func size(t testing.TB) float64 {
	t.Helper()
	st, err := os.Stat(buildBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	return float64(st.Size()) / (1 << 20)
}

func TestSize(t *testing.T) {
	const limit = 18 // MiB, with all tools
	if mib := size(t); mib >= limit {
		t.Errorf("size of binary is %.1f MiB, want less than %d", mib, limit)
	}
}

// BenchmarkSize reports the size of the binary.
func BenchmarkSize(b *testing.B) {
	var mb float64
	for b.Loop() {
		mb = size(b)
	}
	b.ReportMetric(mb, "MB")
}

func TestNames(t *testing.T) {
	path := buildBinary(t)
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

// BenchmarkFirstRow measures the time from the start of execsnoop to its first row, while another
// goroutine runs processes continuously.
func BenchmarkFirstRow(b *testing.B) {
	tooltest.Root(b)
	path := buildBinary(b)
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

// BenchmarkLoneEvent measures the time from an exec to its row on a pipe, without other events.
func BenchmarkLoneEvent(b *testing.B) {
	tooltest.Root(b)
	path := buildBinary(b)
	row, end := start(b, path, "execsnoop", "--comm", "true")
	defer end()
	if _, err := row.ReadString('\n'); err != nil { // the header is written when the tool is ready
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

// start starts the binary and returns its output. end stops it with SIGINT.
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
