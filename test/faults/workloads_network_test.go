package faults

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// receivingPort is the port of the receiving end of receives.
const receivingPort = 9999

// networkWorkloads returns the workloads of tools for the network.
func networkWorkloads() map[string]workload {
	return map[string]workload{
		"dnssnoop": {
			place: missing, job: "resolve", n: 100, storm: "resolve", storms: 10_000, fits: true, first: "own network",
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
		},
		"tcpcong": {
			place: missing, job: "congest", n: 10, storm: "congest", storms: 100, fits: true, first: "own network",
			column: "changes",
			args:   func(l *load) []string { return []string{"--netns-id", netNSOf(l.pid)} },
		},
		"tcppktlat": {
			place: missing, job: "send", n: 500, storm: "send", storms: 100_000,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
		},
		"tcprtt": {
			place: missing, job: "receive", n: 500, storm: "receive", storms: 50_000, first: "own network",
			args: func(l *load) []string {
				return []string{"-p", strconv.Itoa(receivingPort), "--netns-id", netNSOf(l.pid)}
			},
		},
		"tcpsubnet": {
			place: missing, job: "send", n: 500, storm: "send", storms: 50_000, column: "tx_bytes",
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
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
		"congest": congests,
		"receive": receives,
		"resolve": resolves,
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

// congests loses a byte on each of n connections until the retransmission timer expires, which changes
// the congestion state once, and resets them.
func congests(n int, _ string) (int, error) {
	l, addr, err := listen()
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	for i := range n {
		c, err := lose(l, addr)
		if err != nil {
			return i, err
		}
		defer unix.Close(c.to)
		// A FIN of the other end would not be acknowledged either.
		for _, fd := range []int{c.from, c.to} {
			if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
				return i, err
			}
		}
		defer func() {
			const loss = 4
			for ; err == nil; time.Sleep(time.Millisecond) {
				info, failed := unix.GetsockoptTCPInfo(c.from, unix.IPPROTO_TCP, unix.TCP_INFO)
				if failed != nil || info.Ca_state == loss {
					break
				}
			}
			unix.Close(c.from)
		}()
	}
	return n, nil
}

// resolves sends n queries to itself, and answers them.
func resolves(n int, _ string) (int, error) {
	const server, answered = 53, 0x80
	var fds [2]int
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	if err := unix.Bind(fds[0], loopback(server)); err != nil {
		return 0, err
	}
	if err := unix.Connect(fds[1], loopback(server)); err != nil {
		return 0, err
	}
	// The header with one question, and the question: type A, class IN, name a.
	message := append([]byte{5: 1, 11: 0}, 1, 'a', 0, 0, 1, 0, 1)
	for i := range n {
		message[0], message[1], message[2] = byte(i>>8), byte(i), 0
		if _, err := unix.Write(fds[1], message); err != nil {
			return i, err
		}
		_, from, err := unix.Recvfrom(fds[0], message, 0)
		if err != nil {
			return i, err
		}
		message[2] = answered
		if err := unix.Sendto(fds[0], message, 0, from); err != nil {
			return i, err
		}
		if _, err := unix.Read(fds[1], message); err != nil {
			return i, err
		}
	}
	return n, nil
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
