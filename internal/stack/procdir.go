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

	"github.com/corescope/corescope/internal/limit"
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

// read reads a file of the kernel that has a few lines.
func (d procDir) read(name string) ([]byte, error) {
	const most = 1 << 20 // status lists all groups
	return limit.ReadFile(filepath.Join(d.path, name), most)
}

// maps reads the executable mappings. isAny reports whether there are others, too. If there are too
// many, it returns the first ones and a [limit.Error].
func (d procDir) maps() (maps []mapping, isAny bool, err error) {
	name := filepath.Join(d.path, "maps")
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	return parseMaps(f, d.file.Name()+"/maps")
}

// stat tells whether it is a thread of the kernel's, and when the process began, by fields
// 9 and 22 of stat; the second one, in parentheses, may hold anything.
func (d procDir) stat() (ofKernel bool, start uint64, err error) {
	const flagsField, startField = 9 - 3, 22 - 3
	const kthread = 0x00200000 // PF_KTHREAD
	b, err := d.read("stat")
	if err != nil {
		return false, 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= startField {
		return false, 0, errors.New("malformed stat")
	}
	flags, err := strconv.ParseUint(string(fields[flagsField]), 10, 32)
	if err != nil {
		return false, 0, err
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	return flags&kthread != 0, start, err
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

// openThread opens the directory of a thread of d that has mappings, which are
// those of all, and returns them. The first thread may exit before the others.
func (d procDir) openThread() (t procDir, maps []mapping, err error) {
	tasks, _ := os.ReadDir(filepath.Join(d.path, "task"))
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		t, err := openProc(tid)
		if err != nil {
			continue
		}
		if maps, isAny, err := t.maps(); (err == nil || errors.Is(err, limit.ErrExceeded)) && isAny {
			return t, maps, nil
		}
		t.Close()
	}
	return procDir{}, nil, fmt.Errorf("all threads have exited: %w", fs.ErrNotExist)
}

// reasonOf classifies an error of reading below /proc/PID.
func reasonOf(err error) Reason {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Exited
	}
	return Unreadable
}
