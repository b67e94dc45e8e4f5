package fleet

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// buildDir is where programs are built. TestMain removes it.
var buildDir string

// agentProgram is the path of corescope-agent, built once. corescope is beside it.
var agentProgram = sync.OnceValues(func() (path string, err error) {
	cmd := exec.Command("go", "build", "-o", buildDir+"/", "./cmd/corescope", "./cmd/corescope-agent")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0") // static, for images
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build corescope-agent: %w: %s", err, out)
	}
	return filepath.Join(buildDir, "corescope-agent"), nil
})

// needs skips the test unless the variable FLEET names it, or is "all": whether a test runs must not depend on
// what happens to be installed.
func needs(t *testing.T, name, why string) {
	t.Helper()
	if all := strings.Fields(os.Getenv("FLEET")); !slices.Contains(all, name) && !slices.Contains(all, "all") {
		t.Skipf("%s: set FLEET=%s (make test-fleet)", why, name)
	}
	tooltest.Root(t)
}

// component returns the path of a program that scripts/fleet.sh installed. Without it, the test fails.
func component(t *testing.T, path string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cache, "corescope", path)
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("%v: scripts/fleet.sh installs it", err)
	}
	return file
}

// workloadName is the name of the process that does the work, so that tools can select it.
const workloadName = "fleetload"

const workloadEnv = "CORESCOPE_FLEET_WORKLOAD"

func TestMain(m *testing.M) {
	if path := os.Getenv(workloadEnv); path != "" {
		if err := read(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "fleet"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}

// read reads a file directly from the disk, in blocks of 4 KiB to 1 MiB.
func read(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := range readCount {
		size := 4096 << (i % 9)
		if _, err := unix.Pread(fd, buf[:size], int64(i%16)<<20); err != nil {
			return err
		}
	}
	return nil
}

const readCount = 1500

// work runs the workload, and returns its process ID.
func work(t *testing.T) int {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "data")
	if err := os.WriteFile(file, bytes.Repeat([]byte("fleet"), 17<<20/5), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	if err := fd.Sync(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, workloadName)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link)
	cmd.Env = append(os.Environ(), workloadEnv+"="+file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("read with O_DIRECT: %v: %s", err, out)
	}
	return cmd.Process.Pid
}

// A process is a running program.
type process struct {
	*exec.Cmd
	name string
	log  *os.File
	done chan struct{} // closed when it has ended
	err  error         // of Wait
}

// startProcess starts a program that ends with the test.
func startProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(name, args...), name: filepath.Base(name), log: log, done: make(chan struct{})}
	p.Stdout, p.Stderr = log, log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.end(t)
		if t.Failed() {
			t.Logf("%s printed:\n%s", p.name, p.output(t))
		}
	})
	return p
}

func (p *process) output(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// end ends the program in an orderly way.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.Process.Signal(unix.SIGTERM)
	<-p.done
	if p.err != nil {
		t.Errorf("%s: %v", p.name, p.err)
	}
}

// startAgent starts an agent and waits until its tools are ready. It returns its address.
func startAgent(t *testing.T, config string) (address string, agent *process) {
	t.Helper()
	tooltest.Root(t)
	program, err := agentProgram()
	if err != nil {
		t.Fatal(err)
	}
	address = freeAddress(t)
	path := filepath.Join(t.TempDir(), "agent.yaml")
	config = "listen: " + address + "\nmax_cpu: 10000%\n" + config
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	agent = startProcess(t, program, "--config", path)
	agent.await(t, "the agent to be ready", func() bool { return get(t, "http://"+address+"/readyz") != nil })
	return address, agent
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// get returns the body of an answer with status 200, else nil.
func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return append(body, 0)[:len(body)]
}

// await waits until a condition holds, while the program runs.
func (p *process) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await(t, what, func() bool {
		select {
		case <-p.done:
			t.Fatalf("%s ended", p.name)
		default:
		}
		return holds()
	})
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited two minutes for %s", what)
		}
	}
}
