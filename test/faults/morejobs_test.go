package faults

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

func nothing(int, string) (int, error) { return 0, nil }

// misses reads pages of a disk that are not in the page cache, one request per page.
func misses(n int, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil {
		return 0, err
	}
	page := make([]byte, diskBlock)
	for i := range n {
		at := int64(i) * diskBlock % diskSize
		if at == 0 {
			if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
				return i, err
			}
		}
		if _, err := unix.Pread(fd, page, at); err != nil {
			return i, err
		}
	}
	return n, nil
}

// bpfProgram loads a program and returns its ID.
func bpfProgram(t testing.TB) string {
	t.Helper()
	tooltest.Root(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return strconv.Itoa(int(id))
}

// runsProgram runs the program with this ID n times (BPF_PROG_TEST_RUN), one system call each.
func runsProgram(n int, id string) (int, error) {
	number, err := strconv.Atoi(id)
	if err != nil {
		return 0, err
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(number))
	if err != nil {
		return 0, err
	}
	defer p.Close()
	for i := range n {
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil {
			return i, err
		}
	}
	return n, nil
}

// jvm creates a library with the USDT probes of a Java runtime at which a garbage collection begins
// and ends.
func jvm(t testing.TB) string {
	t.Helper()
	return native.Write(t, t.TempDir()+"/libjvm.so", collection(),
		native.Probe{Function: "begin", Provider: "hotspot", Name: "gc__begin", Args: "1@$0", Semaphore: true},
		native.Probe{Function: "end", Provider: "hotspot", Name: "gc__end"}).Path
}

func collection() []string { return []string{"begin", "end"} }

func collects(n int, path string) (int, error) {
	lib := libraries[path]
	if lib == nil {
		lib = &native.Library{Path: path}
		if err := lib.Load(collection()...); err != nil {
			return 0, err
		}
		libraries[path] = lib
	}
	for range n {
		lib.Call("begin", native.Call{})
		lib.Call("end", native.Call{})
	}
	return n, nil
}

// spins uses a CPU for n ms. It returns no number: tooltest.Samples counts the samples.
func spins(n int, _ string) (int, error) {
	for end := cpuTime() + time.Duration(n)*time.Millisecond; cpuTime() < end; {
	}
	return 0, nil
}

func cpuTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // supported by every kernel
	return time.Duration(ts.Nano())
}

// ownNetwork moves the load's first thread to a new network namespace with its own loopback device,
// where no other process causes events.
func ownNetwork(int, string) (int, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return 0, fmt.Errorf("create network namespace: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return 0, err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return 0, fmt.Errorf("enable loopback: %w", err)
	}
	return 0, nil
}

// lossy is a connection whose receiver drops all packets.
type lossy struct{ from, to int }

// loses sends a byte on each of n connections, drops it until it has been retransmitted twice, and
// returns the number of retransmitted segments.
func loses(n int, _ string) (int, error) {
	l, addr, err := listen()
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	var all []lossy
	defer func() {
		for _, c := range all {
			unix.Close(c.from)
			unix.Close(c.to)
		}
	}()
	for range n {
		c, err := lose(l, addr)
		if err != nil {
			return 0, err
		}
		all = append(all, c)
	}
	// Each connection receives as soon as its byte has been retransmitted twice, because the
	// retransmission timeout doubles each time.
	for waiting := slices.Clone(all); len(waiting) > 0; time.Sleep(time.Millisecond) {
		waiting = slices.DeleteFunc(waiting, func(c lossy) bool {
			n, failed := c.retransmits()
			if failed == nil && n >= 2 {
				failed = unix.SetsockoptInt(c.to, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
			}
			err = errors.Join(err, failed)
			return n >= 2 || failed != nil
		})
	}
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, c := range all {
		retransmitted, err := c.recovered()
		if err != nil {
			return sum, err
		}
		sum += retransmitted
	}
	return sum, nil
}

func lose(l int, addr unix.Sockaddr) (c lossy, err error) {
	if c.from, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return c, err
	}
	if err := unix.Connect(c.from, addr); err != nil {
		return c, err
	}
	if c.to, _, err = unix.Accept(l); err != nil {
		return c, err
	}
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	filter := unix.SockFprog{Len: 1, Filter: &drop[0]}
	if err := unix.SetsockoptSockFprog(c.to, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter); err != nil {
		return c, err
	}
	_, err = unix.Write(c.from, []byte{0})
	return c, err
}

// retransmits returns the number of segments that the connection has retransmitted.
func (c lossy) retransmits() (int, error) {
	info, err := unix.GetsockoptTCPInfo(c.from, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, err
	}
	return int(info.Total_retrans), nil
}

// recovered waits until the byte has arrived and is acknowledged, so that nothing is left to
// retransmit, and returns the number of retransmitted segments.
func (c lossy) recovered() (int, error) {
	if _, err := unix.Read(c.to, make([]byte, 1)); err != nil {
		return 0, err
	}
	for ; ; time.Sleep(time.Millisecond) {
		info, err := unix.GetsockoptTCPInfo(c.from, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return 0, err
		}
		if info.Unacked == 0 {
			return int(info.Total_retrans), nil
		}
	}
}
