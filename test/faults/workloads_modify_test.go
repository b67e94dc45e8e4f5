package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tooltest"
)

// modifyWorkloads returns the workloads of tools that change the system, and of throttletop.
func modifyWorkloads() map[string]workload {
	return map[string]workload{
		"inject": {
			place: failingAllocations, job: "create pipe", n: 200, storm: "create pipe", storms: 20_000, machine: true,
			args: func(l *load) []string {
				return []string{"--dry-run", "--pid", strconv.Itoa(l.pid), "kmalloc", "sys_pipe2()"}
			},
		},
		"mptcpify": {
			place: changingProtocols, job: "create TCP socket", n: 500, storm: "create TCP socket", storms: 100_000,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
		},
		"rdmaucma": {
			place: rdmaModule, job: "nothing", storm: "nothing", machine: true, args: func(*load) []string { return nil },
		},
		"resettrace": {
			place: tracingInstance, job: "nothing", storm: "nothing", listed: func(*load, testing.TB) int { return 1 }, tracefs: 4,
			args: func(l *load) []string { return []string{"--dry-run", "-F", "--instance", l.place, "tracing_on"} },
		},
		"throttletop": {
			place: limitedCgroup, job: "nothing", storm: "nothing", machine: true,
			args: func(l *load) []string { return []string{"0.1", "--cgroup", l.place} },
		},
	}
}

// modifyJobs returns the jobs of these workloads.
func modifyJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){"create TCP socket": createsTCP, "create pipe": createsPipes}
}

func createsPipes(n int, _ string) (int, error) {
	for i := range n {
		var fds [2]int
		if err := unix.Pipe2(fds[:], 0); err != nil {
			return i, err
		}
		unix.Close(fds[0])
		unix.Close(fds[1])
	}
	return n, nil
}

func createsTCP(n int, _ string) (int, error) {
	for i := range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return i, err
		}
		unix.Close(fd)
	}
	return n, nil
}

// changingProtocols skips the test on a kernel that cannot change the protocol of sockets.
func changingProtocols(t testing.TB) string {
	t.Helper()
	tooltest.Fentry(t)
	if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err != nil || !tooltest.HasFunction(t, "update_socket_protocol") {
		t.Skip("the kernel has no MPTCP, or no hook for it (6.6)")
	}
	return missing(t)
}

// failingAllocations skips the test on a kernel without a function that fails allocations.
func failingAllocations(t testing.TB) string {
	t.Helper()
	tooltest.KernelFunctions(t)
	if text, err := os.ReadFile("/proc/kallsyms"); err != nil || !strings.Contains(string(text), " should_failslab\n") {
		t.Skipf("the kernel has no function should_failslab: %v", err)
	}
	return missing(t)
}

// rdmaModule skips the test if the module rdma_ucm is not loaded.
func rdmaModule(t testing.TB) string {
	t.Helper()
	tooltest.KernelFunctions(t)
	if _, err := os.Stat("/sys/module/rdma_ucm"); err != nil {
		t.Skipf("the module is not loaded: %v", err)
	}
	return missing(t)
}

// tracingInstance creates an instance of tracefs in which tracing is off, and returns its name.
func tracingInstance(t testing.TB) string {
	t.Helper()
	tooltest.Tracefs(t)
	root, err := (&target.Finder{}).TracingDir()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("faults-%d", time.Now().UnixNano())
	dir := filepath.Join(root, "instances", name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, "tracing_on"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	return name
}

// limitedCgroup creates a cgroup with a CPU limit.
func limitedCgroup(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("faults-limited-%d", time.Now().UnixNano())
	dir, _ := tooltest.CPUCgroup(t, name, 20*time.Millisecond, 100*time.Millisecond)
	return dir
}
