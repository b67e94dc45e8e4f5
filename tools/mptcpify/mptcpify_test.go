package mptcpify

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// needsHook skips the test on a kernel without the hook, where the tool says so.
func needsHook(t *testing.T) {
	t.Helper()
	tooltest.Fentry(t)
	if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err == nil && tooltest.HasFunction(t, "update_socket_protocol") {
		return
	}
	tooltest.Fails(t, Tool, nil, 4, "CONFIG_MPTCP")
	t.Skip("the kernel has no MPTCP, or no hook for it (6.6)")
}

// created returns the protocol of a new socket, and closes it.
func created(t *testing.T, family, kind, protocol int) (fd, got int) {
	t.Helper()
	fd, err := unix.Socket(family, kind, protocol)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	got, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		t.Fatal(err)
	}
	return fd, got
}

// TestProtocol compares the protocols of sockets with those that were requested, during and after a
// run, and the rows with the changed sockets.
func TestProtocol(t *testing.T) {
	needsHook(t)
	const tcp, udp, mptcp = unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_MPTCP
	calls := []struct{ family, kind, protocol, want int }{
		{unix.AF_INET, unix.SOCK_STREAM, 0, mptcp},
		{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, tcp, mptcp},
		{unix.AF_INET, unix.SOCK_DGRAM, 0, udp},
		{unix.AF_INET, unix.SOCK_STREAM, mptcp, mptcp},
		{unix.AF_UNIX, unix.SOCK_STREAM, 0, 0},
	}
	var fds []int
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		for _, c := range calls {
			fd, got := created(t, c.family, c.kind, c.protocol)
			if got != c.want {
				t.Errorf("socket(%d, %d, %d) has protocol %d, want %d", c.family, c.kind, c.protocol, got, c.want)
			}
			fds = append(fds, fd)
		}
	})
	if len(res.Events) != 2 {
		t.Fatalf("rows %v, want two", res.Events)
	}
	for i, r := range res.Events {
		if r.Num("fd") != float64(fds[i]) || r.Num("family") != float64([]int{4, 6}[i]) || r.Num("pid") != float64(os.Getpid()) {
			t.Errorf("row %v, want descriptor %d", r, fds[i])
		}
	}
	if _, got := created(t, unix.AF_INET, unix.SOCK_STREAM, 0); got != tcp {
		t.Errorf("after the run, a socket has protocol %d", got)
	}
}

// TestTargets checks that only threads with the given names are changed.
func TestTargets(t *testing.T) {
	needsHook(t)
	comm, err := os.ReadFile("/proc/self/comm") // also that of the other threads
	if err != nil {
		t.Fatal(err)
	}
	for names, want := range map[string]int{"other," + strings.TrimSpace(string(comm)): unix.IPPROTO_MPTCP, "other,another": unix.IPPROTO_TCP} {
		res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid()), "-t", names}, func() {
			if _, got := created(t, unix.AF_INET, unix.SOCK_STREAM, 0); got != want {
				t.Errorf("-t %s: protocol %d, want %d", names, got, want)
			}
		})
		if (len(res.Events) == 1) != (want == unix.IPPROTO_MPTCP) {
			t.Errorf("-t %s: rows %v", names, res.Events)
		}
	}
}

// TestRefused creates sockets in a network namespace that does not permit MPTCP: the first fails, and
// the others are TCP sockets.
func TestRefused(t *testing.T) {
	needsHook(t)
	const sysctl = "/proc/sys/net/mptcp/enabled"
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread ends with its namespace
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Error(err)
				return
			}
			if err := os.WriteFile(sysctl, []byte("0"), 0); err != nil {
				t.Error(err)
				return
			}
			if _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != unix.ENOPROTOOPT {
				t.Errorf("the first socket: %v", err)
			}
			for range 3 {
				if _, got := created(t, unix.AF_INET, unix.SOCK_STREAM, 0); got != unix.IPPROTO_TCP {
					t.Errorf("protocol %d", got)
				}
			}
		}()
		<-done
	})
	counters, _ := res.Summary["counters"].(map[string]any)
	if len(res.Events) != 1 || res.Events[0]["error"] != "ENOPROTOOPT" || counters["left_tcp"] != 3.0 {
		t.Errorf("rows %v, summary %v", res.Events, res.Summary)
	}
}

func TestEnabled(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "enabled")
	if err := checkEnabled(path); err != nil {
		t.Errorf("without the file: %v", err)
	}
	for text, want := range map[string]bool{"0\n": false, "1\n": true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkEnabled(path); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
