package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestCgroupChurn runs a program in each of 10,000 cgroups, which are labels of a metric, and removes them.
// When the series and the names of cgroups have expired, the agent has as much memory as before.
func TestCgroupChurn(t *testing.T) {
	needs(t, "churn", "takes 16 minutes, because names of removed cgroups are kept for five")
	parent := tooltest.Cgroup(t, "cgroup2", "corescope-churn")
	agent, process := startAgent(t, "interval: 1s\nseries: {ttl: 30s}\ntools:\n"+
		"  - {tool: execsnoop, args: [--comm, "+workloadName+"], export: {labels: [cgroup]}}\n  - {tool: runqlat, args: [--cgroups]}\n")
	path := filepath.Join(t.TempDir(), workloadName)
	data, err := os.ReadFile("/bin/true")
	if err == nil {
		err = os.WriteFile(path, data, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	churn := func(n int) {
		t.Helper()
		for i := range n {
			if err := runInCgroup(path, filepath.Join(parent, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	series := regexp.MustCompile(`(?m)^corescope_execsnoop_events_total\{`)
	settle := func() (private int) {
		t.Helper()
		time.Sleep(7*time.Minute + 30*time.Second) // goneTTL, two sweeps and a collection of garbage
		if n := len(series.FindAll(get(t, "http://"+agent+"/metrics"), -1)); n > 1 {
			t.Errorf("%d series are left", n)
		}
		return privateKB(t, process.Process.Pid)
	}
	churn(200)
	before := settle()
	churn(10_000)
	most := privateKB(t, process.Process.Pid)
	after := settle()
	t.Logf("private memory: %d kB before, %d kB during, %d kB after 10,000 cgroups", before, most, after)
	if after > before+before/10 {
		t.Errorf("private memory was %d kB, and is %d kB after 10,000 cgroups", before, after)
	}
}

// runInCgroup creates a cgroup, runs the program in it and removes it.
func runInCgroup(program, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	fd, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer fd.Close()
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	if err := cmd.Run(); err != nil {
		return err
	}
	return unix.Rmdir(dir)
}

// privateKB returns the private memory of a process.
func privateKB(t *testing.T, pid int) (kB int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^Private_(Clean|Dirty): +(\d+) kB`).FindAllStringSubmatch(string(text), -1) {
		n := 0
		fmt.Sscan(match[2], &n)
		kB += n
	}
	return kB
}
