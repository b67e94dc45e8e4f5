package faults

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest/native"
)

// jobs returns the jobs by name. Each does something n times at a place and returns how often it
// happened.
func jobs() map[string]func(n int, place string) (int, error) {
	all := map[string]func(int, string) (int, error){
		"exec":    func(n int, path string) (int, error) { return execs(n, path, 10) },
		"execbig": func(n int, path string) (int, error) { return execs(n, path, 60_000) },
		"open":    opens,
		"connect": connects,
		"ends":    func(n int, place string) (int, error) { return twice(connects(n, place)) },
		"refuse":  refuses,
		"states":  func(n int, place string) (int, error) { return twice(refuses(n, place)) },
		"send":    sends,
		"pread":   preads,
		"mkdir":   mkdirs,
		"getppid": getppids,
		"lookup":  func(n int, path string) (int, error) { return calls(n, path, "getaddrinfo", noName()) },
		"type":    func(n int, path string) (int, error) { return calls(n, path, "readline", line()) },
		"probe":   func(n int, path string) (int, error) { return calls(n, path, "probe", native.Call{}) },
		"malloc": func(n int, path string) (int, error) {
			return calls(n, path, "malloc", native.Call{Args: [7]uint64{64}, Ret: 1 << 20})
		},
		"query":   func(n int, path string) (int, error) { return calls(n, path, dispatchCommand, query()) },
		"encrypt": func(n int, path string) (int, error) { return calls(n, path, "SSL_write", data()) },
		"read":    reads,
		"sleep":   sleeps,
		"crowd":   crowd,
		"pin":     func(cpu int, _ string) (int, error) { return 0, pin(cpu) },

		"nothing":      nothing,
		"inversions":   inversions,
		"datagram":     datagrams,
		"two stages":   func(n int, path string) (int, error) { return twice(datagrams(n, path)) },
		"fsync":        fsyncs,
		"futex":        futexes,
		"miss":         misses,
		"run program":  runsProgram,
		"collect":      collects,
		"spin":         spins,
		"spin code":    spinsCode,
		"keep code":    keepsCode,
		"lose":         loses,
		"own network":  ownNetwork,
		"keep files":   keepFiles,
		"keep areas":   keepAreas,
		"keep sockets": keepSockets,
		"keep maps":    keepMaps,
	}
	maps.Copy(all, blockJobs())
	maps.Copy(all, networkJobs())
	maps.Copy(all, memoryJobs())
	maps.Copy(all, fileJobs())
	maps.Copy(all, processJobs())
	maps.Copy(all, languageJobs())
	maps.Copy(all, modifyJobs())
	return all
}

func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// execs runs a program n times with one argument of size bytes.
func execs(n int, path string, size int) (int, error) {
	argv := []string{"true", strings.Repeat("x", size)}
	for i := range n {
		pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{})
		if err != nil {
			return i, err
		}
		if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
			return i, err
		}
	}
	return n, nil
}

// opens opens a file that does not exist.
func opens(n int, path string) (int, error) {
	for i := range n {
		if _, err := unix.Open(path, unix.O_RDONLY, 0); err != unix.ENOENT {
			return i, fmt.Errorf("open: %v", err)
		}
	}
	return n, nil
}

// twice doubles n, for jobs that cause two rows each time.
func twice(n int, err error) (int, error) { return 2 * n, err }

// connects connects to itself n times and resets the connections, so that no port stays in
// TIME_WAIT.
func connects(n int, _ string) (int, error) {
	l, to, err := listen()
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	for i := range n {
		if err := connect(l, to); err != nil {
			return i, err
		}
	}
	return n, nil
}

func listen() (int, unix.Sockaddr, error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, err
	}
	if err := unix.Bind(l, loopback(0)); err != nil {
		return -1, nil, err
	}
	if err := unix.Listen(l, 16); err != nil {
		return -1, nil, err
	}
	to, err := unix.Getsockname(l)
	return l, to, err
}

func loopback(port int) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

func connect(l int, to unix.Sockaddr) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := unix.Connect(s, to); err != nil {
		return err
	}
	a, _, err := unix.Accept(l)
	if err != nil {
		return err
	}
	return unix.Close(a)
}

// sends sends n bytes to itself, one at a time.
func sends(n int, _ string) (int, error) {
	l, to, err := listen()
	if err != nil {
		return 0, err
	}
	defer unix.Close(l)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
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
		if _, err := unix.Write(s, b); err != nil {
			return i, err
		}
		if _, err := unix.Read(a, b); err != nil {
			return i, err
		}
	}
	return n, nil
}

// refusedPort is a port on which no process listens.
const refusedPort = 1

// refuses opens connections, which the kernel refuses.
func refuses(n int, _ string) (int, error) {
	for i := range n {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return i, err
		}
		err = unix.Connect(s, loopback(refusedPort))
		unix.Close(s)
		if err != unix.ECONNREFUSED {
			return i, fmt.Errorf("connect to port without listener: %v", err)
		}
	}
	return n, nil
}

// preads reads a file from the page cache.
func preads(n int, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	b := make([]byte, 16)
	for i := range n {
		if _, err := unix.Pread(fd, b, 0); err != nil {
			return i, err
		}
	}
	return n, nil
}

func mkdirs(n int, path string) (int, error) {
	for i := range n {
		if err := errors.Join(unix.Mkdir(path, 0o700), unix.Rmdir(path)); err != nil {
			return i, err
		}
	}
	return n, nil
}

func getppids(n int, _ string) (int, error) {
	for range n {
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
	return n, nil
}

// reads reads blocks of a disk, one request per block.
func reads(n int, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	block, err := unix.Mmap(-1, 0, diskBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(block)
	for i := range n {
		if _, err := unix.Pread(fd, block, int64(i*2*diskBlock%diskSize)); err != nil {
			return i, err
		}
	}
	return n, nil
}

// sleeps returns no number: the kernel counts how often the thread waited for a CPU.
func sleeps(n int, _ string) (int, error) {
	for range n {
		unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil)
	}
	return 0, nil
}

// crowd creates threads that sleep until the process exits.
func crowd(n int, _ string) (int, error) {
	started := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			var never unix.Timespec
			never.Sec = 1 << 30
			unix.Nanosleep(&never, nil)
		}()
		<-started
	}
	return n, nil
}
