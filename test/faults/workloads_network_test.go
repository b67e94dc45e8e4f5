package faults

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// receivingPort is the port of the receiving end of receives.
const receivingPort = 9999

// networkWorkloads returns the workloads of tools for the network.
func networkWorkloads() map[string]workload {
	return map[string]workload{
		"tcprtt": {
			place: missing, job: "receive", n: 500, storm: "receive", storms: 50_000, first: "own network",
			args: func(l *load) []string {
				return []string{"-p", strconv.Itoa(receivingPort), "--netns-id", netNSOf(l.pid)}
			},
		},
		"tcpsynbl": {
			place: missing, job: "connect", n: 100, storm: "connect", storms: 5000, first: "own network",
			args: func(l *load) []string { return []string{"--netns-id", netNSOf(l.pid)} },
		},
		"tcptracer": {
			place: missing, job: "trace", n: 100, storm: "trace", storms: 5000, fits: true,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
		},
	}
}

// networkJobs returns jobs for these workloads.
func networkJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){
		"receive": receives,
		"trace":   func(n int, place string) (int, error) { return twice(twice(connects(n, place))) },
	}
}

// netNSOf returns the inode number of the network namespace of a process.
func netNSOf(pid int) string {
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st); err != nil {
		return err.Error()
	}
	return strconv.FormatUint(st.Ino, 10)
}

// receives receives n segments at receivingPort, which sends no data.
func receives(n int, _ string) (int, error) {
	l, to, err := listen()
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(s, loopback(receivingPort)); err != nil {
		return 0, err
	}
	// The RST leaves no TIME_WAIT, so that the port can be used again.
	if err := unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, err
	}
	if err := unix.Connect(s, to); err != nil {
		return 0, err
	}
	a, _, err := unix.Accept(l)
	if err != nil {
		return 0, err
	}
	defer unix.Close(a)
	b := make([]byte, 1)
	for i := range n {
		if _, err := unix.Write(a, b); err != nil {
			return i, err
		}
		if _, err := unix.Read(s, b); err != nil {
			return i, err
		}
	}
	// Before a, whose FIN would be another segment.
	return n, unix.Close(s)
}
