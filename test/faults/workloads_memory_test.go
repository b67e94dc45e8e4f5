package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// memoryWorkloads returns the workloads of tools for memory.
func memoryWorkloads() map[string]workload {
	byTID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--tid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"compactsnoop": {
			place: missing, job: "compact", n: 2, storm: "compact", storms: 5, fits: true, args: byTID(),
		},
		"drsnoop": {
			place: memoryCgroup("reclaims"), job: "reclaim", n: 5, storm: "reclaim", storms: 100, fits: true, machine: true, args: inPlace,
		},
		"kvmexit": {
			place: kvm, job: "nothing", storm: "nothing", machine: true, column: "count", args: byTID(),
		},
		"numamove": {
			place: missing, job: "compact", n: 1, storm: "compact", storms: 5, machine: true, column: "migrations",
			args: func(l *load) []string { return append(byTID()(l), "--reason", "compaction") },
		},
		"oomkill": {
			place: memoryCgroup("kills"), job: "exceed", n: 3, storm: "exceed", storms: 30, fits: true, args: inPlace,
		},
		"shmsnoop": {
			place: missing, job: "shmget", n: 1000, storm: "shmget", storms: 200_000, args: byTID(),
		},
		"swapin": {
			place: noFunctions, job: "nothing", storm: "nothing", machine: true, column: "count", args: byTID(),
		},
		"slabratetop": {
			place: missing, job: "create eventfd", n: 1000, storm: "create eventfd", storms: 100_000, column: "allocs",
			args: byTID("--filter", `cache == "filp"`),
		},
	}
}

// memoryJobs returns the jobs of these workloads.
func memoryJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){
		"compact": compacts, "exceed": exceeds, "create eventfd": createsEventFD, "reclaim": reclaims, "shmget": shmgets,
	}
}

// noFunctions skips the test if no programs can be attached to functions of the kernel.
func noFunctions(t testing.TB) string {
	t.Helper()
	tooltest.KernelFunctions(t)
	return missing(t)
}

// kvm skips the test if the kernel has no KVM.
func kvm(t testing.TB) string {
	t.Helper()
	if !tooltest.HasTracepoint(t, "kvm_exit") {
		if _, err := os.Stat("/sys/module/kvm"); err != nil {
			t.Skipf("the kernel has no KVM: %v", err)
		}
	}
	return missing(t)
}

func inPlace(l *load) []string {
	return []string{"--cgroup", l.place}
}

// memoryCgroup returns a function that creates a cgroup with a limit of 8 MB.
func memoryCgroup(name string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		own := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
		dir, _ := tooltest.MemoryCgroup(t, fmt.Sprintf("faults-%s-%d-%s", name, os.Getpid(), own), 8<<20)
		return dir
	}
}

// exceeds starts n processes that exceed the memory limit of a cgroup, so that the kernel kills them.
func exceeds(n int, dir string) (int, error) {
	for i := range n {
		err := tooltest.InCgroup(dir, "/bin/sh", "-c", "a=xxxxxxxx; while :; do a=$a$a; done").Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
			return i, fmt.Errorf("shell ended with %v, want SIGKILL", err)
		}
	}
	return n, nil
}

// reclaims reads a file n times in a cgroup whose limit is lower than the size of the file. How often
// the kernel reclaims pages is unknown.
func reclaims(n int, dir string) (count int, err error) {
	const size = 16 << 20
	f, err := os.CreateTemp("", "reclaim")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(size), enter(dir)); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, enter(filepath.Dir(dir))) }()
	b := make([]byte, 1<<20)
	for range n {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return 0, err
		}
		for at := int64(0); at < size; at += int64(len(b)) {
			if _, err := f.ReadAt(b, at); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil
}

// enter moves this process to a cgroup.
func enter(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// createsEventFD allocates one struct file each: no path is looked up, which the kernel can repeat with
// another allocation.
func createsEventFD(n int, _ string) (int, error) {
	for i := range n {
		fd, err := unix.Eventfd(0, 0)
		if err != nil {
			return i, err
		}
		unix.Close(fd)
	}
	return n, nil
}

// shmgets looks up a segment that does not exist.
func shmgets(n int, _ string) (int, error) {
	const key = 0x12345678
	for i := range n {
		if _, _, err := unix.RawSyscall(unix.SYS_SHMGET, key, 0, 0); err != unix.ENOENT {
			return i, fmt.Errorf("shmget: %v", err)
		}
	}
	return n, nil
}

// compacts compacts each zone that has memory, n times.
func compacts(n int, _ string) (int, error) {
	text, err := os.ReadFile("/proc/zoneinfo")
	if err != nil {
		return 0, err
	}
	zones := 0
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "present" && f[1] != "0" {
			zones++
		}
	}
	for i := range n {
		if err := os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0); err != nil {
			return i * zones, err
		}
	}
	return n * zones, nil
}
