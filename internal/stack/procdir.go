package stack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// procDir is a directory of /proc held open, so that all that is read below
// path is of one process even if its pid is given to another.
type procDir struct {
	file *os.File
	path string
}

func openProc(pid int) (procDir, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return procDir{}, err
	}
	return procDir{f, fmt.Sprintf("/proc/self/fd/%d", f.Fd())}, nil
}

func (d procDir) Close() error { return d.file.Close() }

func (d procDir) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(d.path, name))
}

// startTime is field 22 of stat; the second one, in parentheses, may hold
// anything.
func (d procDir) startTime() (uint64, error) {
	const field = 22 - 3
	b, err := d.read("stat")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= field {
		return 0, errors.New("malformed stat")
	}
	return strconv.ParseUint(string(fields[field]), 10, 64)
}

// innerPID is the last number of NSpid (4.1 and later), or pid.
func (d procDir) innerPID(pid int) int {
	status, err := d.read("status")
	if err != nil {
		return pid
	}
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		pids := bytes.Fields(rest)
		if n, err := strconv.Atoi(string(pids[max(len(pids)-1, 0)])); err == nil {
			return n
		}
	}
	return pid
}

// maps returns the executable mappings. The first thread of a process may exit
// before the others, and shows none from then on: theirs are the same.
func (d procDir) maps() ([]byte, error) {
	b, err := d.read("maps")
	if err != nil || len(b) > 0 {
		return b, err
	}
	tasks, _ := os.ReadDir(filepath.Join(d.path, "task"))
	for _, task := range tasks {
		b, err := d.read(filepath.Join("task", task.Name(), "maps"))
		if err == nil && len(b) > 0 {
			return b, nil
		}
	}
	return nil, nil
}

// reasonOf classifies an error of reading below /proc/PID.
func reasonOf(err error) Reason {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Exited
	}
	return Unreadable
}
