package faults

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// modifyWorkloads returns the workloads of tools that change the system, and of throttletop.
func modifyWorkloads() map[string]workload {
	return map[string]workload{
		"mptcpify": {
			place: missing, job: "create TCP socket", n: 500, storm: "create TCP socket", storms: 100_000,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
		},
		"throttletop": {
			place: limitedCgroup, job: "nothing", storm: "nothing", machine: true,
			args: func(l *load) []string { return []string{"0.1", "--cgroup", l.place} },
		},
	}
}

// modifyJobs returns the jobs of these workloads.
func modifyJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){"create TCP socket": createsTCP}
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

// limitedCgroup creates a cgroup with a CPU limit.
func limitedCgroup(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("faults-limited-%d", time.Now().UnixNano())
	dir, _ := tooltest.CPUCgroup(t, name, 20*time.Millisecond, 100*time.Millisecond)
	return dir
}
