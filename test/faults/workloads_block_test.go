package faults

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// blockWorkloads returns the workloads of further tools for block I/O and sockets.
func blockWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	disk := func(l *load) []string { return append(byPID()(l), "-d", l.place) }
	return map[string]workload{
		"bindsnoop": {
			place: missing, job: "bind", n: 200, storm: "bind", storms: 150_000, args: byPID(),
		},
		"biolatpcts": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000,
			args: func(l *load) []string { return append(byPID()(l), l.place) },
		},
		"biopattern": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000, column: "ios", args: disk,
		},
		"bitesize": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000, args: disk,
		},
		"solisten": {
			place: missing, job: "listen", n: 200, storm: "listen", storms: 80_000, args: byPID(),
		},
	}
}

// blockJobs returns the jobs of these workloads.
func blockJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){"bind": binds, "listen": listens}
}

// binds binds sockets to a port that the kernel chooses.
func binds(n int, _ string) (int, error) {
	for i := range n {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return i, err
		}
		err = unix.Bind(s, loopback(0))
		unix.Close(s)
		if err != nil {
			return i, fmt.Errorf("bind: %w", err)
		}
	}
	return n, nil
}

// listens calls listen n times for the same socket, as programs do to change the backlog.
func listens(n int, _ string) (int, error) {
	l, _, err := listen()
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	for i := 1; i < n; i++ { // listen has called it once
		if err := unix.Listen(l, 16); err != nil {
			return i, err
		}
	}
	return n, nil
}
