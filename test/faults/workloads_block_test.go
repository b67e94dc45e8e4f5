package faults

import (
	"fmt"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
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
		"mdflush": {
			place: mdDisk, job: "flush", n: 100, storm: "flush", storms: 3000, fits: true, args: byPID(),
		},
		"netqtop": {
			place: missing, job: "loop back", n: 200, storm: "loop back", storms: 20_000, first: "own network", column: "packets",
			args: ownNamespace,
		},
		"sofdsnoop": {
			place: missing, job: "pass", n: 100, storm: "pass", storms: 30_000, args: byPID(),
		},
		"undump": {
			place: missing, job: "receive from unix", n: 500, storm: "receive from unix", storms: 100_000, args: byPID(),
		},
		"solisten": {
			place: missing, job: "listen", n: 200, storm: "listen", storms: 80_000, args: byPID(),
		},
	}
}

// blockJobs returns the jobs of these workloads.
func blockJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){
		"bind": binds, "listen": listens, "loop back": loopsBack, "flush": flushes, "receive from unix": receivesUnix,
		"pass": func(n int, place string) (int, error) { return twice(passes(n, place)) },
	}
}

// ownNamespace selects the network namespace of the load.
func ownNamespace(l *load) []string {
	var st unix.Stat_t
	_ = unix.Stat(fmt.Sprintf("/proc/%d/ns/net", l.pid), &st)
	return []string{"-n", "lo", "--filter", fmt.Sprintf(`netns == %d && direction == "TX"`, st.Ino)}
}

// loopsBack sends datagrams to itself.
func loopsBack(n int, _ string) (int, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	if err := unix.Bind(s, loopback(0)); err != nil {
		return 0, err
	}
	to, err := unix.Getsockname(s)
	if err != nil {
		return 0, err
	}
	b := make([]byte, 1)
	for i := range n {
		if err := unix.Sendto(s, b, 0, to); err != nil {
			return i, err
		}
		if _, _, err := unix.Recvfrom(s, b, 0); err != nil {
			return i, err
		}
	}
	return n, nil
}

// passes sends a descriptor to itself, over a Unix socket.
func passes(n int, _ string) (int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for i := range n {
		if err := unix.Sendmsg(fds[0], b, unix.UnixRights(fds[0]), nil, 0); err != nil {
			return i, err
		}
		_, size, _, _, err := unix.Recvmsg(fds[1], b, oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			return i, err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:size])
		if err != nil {
			return i, err
		}
		for k := range messages {
			got, err := unix.ParseUnixRights(&messages[k])
			if err != nil {
				return i, err
			}
			for _, fd := range got {
				unix.Close(fd)
			}
		}
	}
	return n, nil
}

// mdDisk returns the path of an md disk.
func mdDisk(t testing.TB) string {
	t.Helper()
	name, _ := tooltest.Striped(t, tooltest.NewLoop(t, 0).Path, tooltest.NewLoop(t, 0).Path)
	return "/dev/" + name
}

func flushes(n int, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for i := range n {
		if err := unix.Fsync(fd); err != nil {
			return i, err
		}
	}
	return n, nil
}

// receivesUnix sends datagrams to itself over a Unix socket.
func receivesUnix(n int, _ string) (int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	b := make([]byte, 100)
	for i := range n {
		if _, err := unix.Write(fds[0], b); err != nil {
			return i, err
		}
		if _, err := unix.Read(fds[1], b); err != nil {
			return i, err
		}
	}
	return n, nil
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
