package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loadArg makes this program run a load: "bench load NAME DIR COUNT RATE". RATE is in events
// per second, 0 for as fast as possible. The program prints a loadResult.
const loadArg = "load"

// loadResult is the result of a load.
type loadResult struct {
	Begin time.Time     `json:"begin"`
	Count int           `json:"count"`
	Wall  time.Duration `json:"wall_ns"`
	// Ticks are the times of the first events since Begin.
	Ticks []time.Duration `json:"ticks_ns"`
}

// load generates events of one kind.
type load struct {
	// open prepares the load in dir and returns the function that generates event number i.
	open func(dir string) (event func(i int) error, err error)
	// mark returns a text that only the row of event number i contains. It starts with prefix.
	prefix string
	mark   func(i int) string
}

var loads = map[string]load{
	"opens":       {openOpens, openPrefix, openPath},
	"execs":       {openExecs, execPrefix, execWord},
	"conns":       {openConns, connPrefix, connAddr},
	"reads":       {open: openReads, prefix: loadComm},
	"trips":       {open: openTrips},
	"sends":       {open: openSends},
	"calls":       {open: openCalls},
	"writes":      {open: openWrites},
	"spins":       {open: openSpins},
	"writes1":     {open: openFiles(1)},
	"writes100":   {open: openFiles(100)},
	"writes10000": {open: openFiles(10_000)},
}

const (
	// loadComm is the name of the task that generates the load.
	loadComm   = "corescope-load"
	openPrefix = "/none/corescope-bench-"
	execPrefix = "corescope-bench-"
	connPrefix = "127.1."
)

func openPath(i int) string { return fmt.Sprintf("%s%07d", openPrefix, i) }
func execWord(i int) string { return fmt.Sprintf("%s%07d", execPrefix, i) }

// connAddr returns one of 10,000 loopback addresses of equal length.
func connAddr(i int) string { return fmt.Sprintf("%s%d.%d", connPrefix, 100+i/100%100, 100+i%100) }

func runLoad(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s: want NAME DIR COUNT RATE", loadArg)
	}
	l, ok := loads[args[0]]
	if !ok {
		return fmt.Errorf("unknown load %s", args[0])
	}
	count, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	rate, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	// A thread that blocks in RawSyscall keeps its P.
	runtime.GOMAXPROCS(4)
	runtime.LockOSThread()
	event, err := l.open(args[1])
	if err != nil {
		return fmt.Errorf("prepare load: %w", err)
	}
	// From here on this thread does nothing but generate the load.
	if err := nameTask(loadComm); err != nil {
		return err
	}
	r, err := pace(event, count, rate)
	if err != nil {
		return fmt.Errorf("run load: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// nameTask names this thread.
func nameTask(name string) error {
	b := append([]byte(name), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0); err != nil {
		return fmt.Errorf("name task: %w", err)
	}
	return nil
}

// pace generates the events, at equal distances if rate is not 0.
func pace(event func(int) error, count, rate int) (*loadResult, error) {
	begin := time.Now()
	r := &loadResult{Begin: begin, Count: count}
	for i := range count {
		if rate > 0 {
			due := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
			time.Sleep(time.Until(due))
		}
		if i < tickCount && rate > 0 {
			r.Ticks = append(r.Ticks, time.Since(begin))
		}
		if err := event(i); err != nil {
			return nil, err
		}
	}
	r.Wall = time.Since(begin)
	return r, nil
}

// openOpens opens paths that do not exist, so that no file system is involved.
func openOpens(string) (func(int) error, error) {
	path := append([]byte(openPath(0)), 0)
	digits := path[len(path)-8 : len(path)-1]
	dirfd := unix.AT_FDCWD
	return func(i int) error {
		for k := len(digits) - 1; k >= 0; k-- {
			digits[k] = byte('0' + i%10)
			i /= 10
		}
		_, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY, 0, 0, 0)
		if errno != unix.ENOENT {
			return fmt.Errorf("open %s: %w", path, errno)
		}
		return nil
	}, nil
}

func openExecs(string) (func(int) error, error) {
	path, err := exec.LookPath("true")
	if err != nil {
		return nil, err
	}
	return func(i int) error {
		p, err := os.StartProcess(path, []string{path, execWord(i)}, &os.ProcAttr{})
		if err != nil {
			return err
		}
		_, err = p.Wait()
		return err
	}, nil
}

// openConns opens connections and closes them with a reset, so that ports are not used up.
func openConns(string) (func(int) error, error) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	return func(i int) error {
		c, err := net.Dial("tcp4", net.JoinHostPort(connAddr(i), port))
		if err != nil {
			return err
		}
		s, err := l.Accept()
		if err != nil {
			return err
		}
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		c.Close()
		return s.Close()
	}, nil
}

// openSends sends and receives single bytes over one loopback connection.
func openSends(string) (func(int) error, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		return nil, err
	}
	server, err := l.Accept()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 1)
	return func(int) error {
		if _, err := client.Write(b); err != nil {
			return err
		}
		_, err := server.Read(b)
		return err
	}, nil
}

const blockSize = 4096

// openReads reads blocks of a file with O_DIRECT.
func openReads(dir string) (func(int) error, error) {
	path := filepath.Join(dir, "blocks")
	const blocks = 4096
	if err := os.WriteFile(path, make([]byte, blocks*blockSize), 0o600); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	unix.Sync()
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	return func(i int) error {
		_, err := unix.Pread(fd, block, int64(i%blocks)*blockSize)
		return err
	}, nil
}

// openCalls calls getppid().
func openCalls(string) (func(int) error, error) {
	return func(int) error {
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		return nil
	}, nil
}

// openWrites writes the same block of a file repeatedly, in the page cache.
func openWrites(dir string) (func(int) error, error) {
	fd, err := unix.Open(filepath.Join(dir, "written"), unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	block := make([]byte, blockSize)
	return func(int) error {
		_, err := unix.Pwrite(fd, block, 0)
		return err
	}, nil
}

// openSpins keeps two CPUs busy. An event is one millisecond on one of them.
func openSpins(string) (func(int) error, error) {
	go func() {
		//lint:ignore SA5002 keeps the CPU busy on purpose
		for {
		}
	}()
	return func(int) error {
		for begin := time.Now(); time.Since(begin) < time.Millisecond; {
		}
		return nil
	}, nil
}

// openFiles writes one byte to each of a number of files in turn.
func openFiles(n int) func(string) (func(int) error, error) {
	return func(dir string) (func(int) error, error) {
		fds := make([]int, n)
		var err error
		for i := range fds {
			path := filepath.Join(dir, fmt.Sprintf("written%d", i))
			if fds[i], err = unix.Open(path, unix.O_WRONLY|unix.O_CREAT, 0o600); err != nil {
				return nil, err
			}
		}
		b := make([]byte, 1)
		return func(i int) error {
			_, err := unix.Pwrite(fds[i%n], b, 0)
			return err
		}, nil
	}
}

// openTrips sends a byte to another thread and waits until it comes back: two wake-ups and two
// context switches to the woken tasks.
func openTrips(string) (func(int) error, error) {
	var request, reply [2]int
	if err := unix.Pipe(request[:]); err != nil {
		return nil, err
	}
	if err := unix.Pipe(reply[:]); err != nil {
		return nil, err
	}
	go func() {
		runtime.LockOSThread()
		b := make([]byte, 1)
		for {
			if !transfer(request[0], unix.SYS_READ, b) || !transfer(reply[1], unix.SYS_WRITE, b) {
				return
			}
		}
	}()
	b := make([]byte, 1)
	return func(int) error {
		if !transfer(request[1], unix.SYS_WRITE, b) || !transfer(reply[0], unix.SYS_READ, b) {
			return unix.EPIPE
		}
		return nil
	}, nil
}

// transfer reads or writes one byte, bypassing the scheduler of Go, whose work would be measured
// too.
func transfer(fd int, call uintptr, b []byte) bool {
	n, _, _ := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1)
	return n == 1
}
