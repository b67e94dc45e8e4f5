package privileges

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// everything does a little of everything that tools observe. If a new tool observes something else,
// add it here. CPU time is used only for tools that sample it.
func everything(t *testing.T, sampled bool) {
	t.Helper()
	all := map[string]func() error{
		"run a command": func() error { return exec.Command("/bin/true").Run() },
		"use a file":    func() error { return open(filepath.Join(t.TempDir(), "file")) },
		"connect":       connect,
		"use a disk":    func() error { return useDisk(filepath.Join(t.TempDir(), "block")) },
	}
	if sampled {
		all["use a CPU"] = useCPU
	}
	for what, do := range all {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func open(path string) error {
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return err
	}
	_, err := os.ReadFile(path)
	return err
}

// connect opens and closes a connection of which this process has both ends.
func connect() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	served := make(chan error)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, conn)
			err = errors.Join(err, conn.Close())
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("x"))
	return errors.Join(err, conn.Close(), <-served)
}

// useCPU uses enough CPU time for several samples of profile.
func useCPU() error {
	const wanted = 100 * time.Millisecond
	var begin, now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &begin); err != nil {
		return err
	}
	for time.Duration(now.Nano()-begin.Nano()) < wanted {
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
			return err
		}
	}
	return nil
}

// useDisk writes a block to a file with O_DIRECT, and reads the first block of each disk, because
// the file may be on a tmpfs. Disks that cannot be opened are skipped.
func useDisk(file string) error {
	paths, err := filepath.Glob("/sys/block/*")
	if err != nil {
		return err
	}
	errs := []error{writeBlock(file)}
	for _, path := range paths {
		errs = append(errs, readBlock("/dev/"+filepath.Base(path)))
	}
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

func writeBlock(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(block())
	return errors.Join(err, f.Sync(), f.Close())
}

func readBlock(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.ReadFull(f, block())
	return err
}

// block returns memory that is aligned for direct I/O.
func block() []byte {
	const size = 4096
	buf := make([]byte, 2*size)
	start := size - int(uintptr(unsafe.Pointer(&buf[0]))%size)
	return buf[start : start+size]
}
