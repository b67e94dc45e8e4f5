package faults

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// processWorkloads returns the workloads of tools for processes, signals and privileges.
func processWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"exitsnoop": {
			place: ownProgram, job: "exec", n: 50, storm: "exec", storms: 600, fits: true,
			args: func(l *load) []string { return []string{"--comm", filepath.Base(l.place)} },
		},
		"sigsnoop": {
			place: missing, job: "signal", n: 500, storm: "signal", storms: 100_000, args: byPID("-s", "WINCH"),
		},
		"capable": {
			place: missing, job: "set time", n: 500, storm: "set time", storms: 200_000, args: byPID("--denied"),
		},
		"setuids": {
			place: missing, job: "set fsuid", n: 500, storm: "set fsuid", storms: 50_000, args: byPID(),
		},
		"threadsnoop": {
			place: library("libc.so.6", "pthread_create"), job: "create thread", n: 200, storm: "create thread", storms: 50_000, args: byPID(),
		},
		"pidpersec": {
			place: ownProgram, job: "exec", n: 50, storm: "exec", storms: 600, column: "processes", args: byPID(),
		},
		"ttysnoop": {
			place: terminal, job: "write terminal", n: 500, storm: "write terminal", storms: 100_000, args: byPID(),
		},
		"naptime": {
			place: missing, job: "nap", n: 500, storm: "nap", storms: 100_000,
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid)} },
		},
	}
}

// processJobs returns the jobs of these workloads.
func processJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){
		"signal": signals,
		"create thread": func(n int, path string) (int, error) {
			return calls(n, path, "pthread_create", native.Call{Args: [7]uint64{2: 16}})
		},
		"set time":  setTimes,
		"set fsuid": setFSUIDs,
		"nap":       naps,

		"write terminal": writesTerminal,
	}
}

// ownProgram returns a program that does nothing, with a name that no other process has.
func ownProgram(t testing.TB) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "end")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/true", f.Name()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// signals sends a signal that has no effect to its own thread.
func signals(n int, _ string) (int, error) {
	pid, tid := unix.Getpid(), unix.Gettid()
	for i := range n {
		if err := unix.Tgkill(pid, tid, unix.SIGWINCH); err != nil {
			return i, err
		}
	}
	return n, nil
}

// setTimes makes a capability check that fails. The kernel also checks capabilities when the Go
// runtime maps memory; these checks succeed.
func setTimes(n int, _ string) (int, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return 0, err
	}
	sets[0].Effective &^= 1 << unix.CAP_SYS_TIME
	if err := unix.Capset(&head, &sets[0]); err != nil {
		return 0, err
	}
	for i := range n {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETTIMEOFDAY, 0, 0, 0); errno != unix.EPERM {
			return i, fmt.Errorf("settimeofday: %v", errno)
		}
	}
	return n, nil
}

// setFSUIDs sets the ID that the thread has already.
func setFSUIDs(n int, _ string) (int, error) {
	for range n {
		unix.RawSyscall(unix.SYS_SETFSUID, uintptr(unix.Getuid()), 0, 0)
	}
	return n, nil
}

// naps sleeps for no time.
func naps(n int, _ string) (int, error) {
	for i := range n {
		if err := unix.Nanosleep(&unix.Timespec{}, nil); err != nil && err != unix.EINTR {
			return i, err
		}
	}
	return n, nil
}

// terminal opens a pseudo terminal, and reads what is written to it.
func terminal(t testing.TB) string {
	t.Helper()
	master, slave := tooltest.PTY(t)
	t.Cleanup(func() { slave.Close() })
	go func() { _, _ = io.Copy(io.Discard, master) }()
	return slave.Name()
}

// writesTerminal writes single bytes to a terminal.
func writesTerminal(n int, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for i := range n {
		if _, err := unix.Write(fd, []byte{'.'}); err != nil {
			return i, err
		}
	}
	return n, nil
}
