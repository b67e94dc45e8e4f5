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

// procDir is an open directory /proc/PID. Everything below path belongs to the same process, even
// if the PID is reused.
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

// read reads a small file of procfs.
func (d procDir) read(name string) ([]byte, error) {
	const maxBytes = 1 << 20 // status lists all groups
	return limit.ReadFile(filepath.Join(d.path, name), maxBytes)
}

// maps returns the executable mappings. isAny reports whether there are any mappings, executable or
// not. If there are too many, it returns the first ones and a [limit.Error].
func (d procDir) maps() (maps []mapping, isAny bool, err error) {
	name := filepath.Join(d.path, "maps")
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	return parseMaps(f, d.file.Name()+"/maps")
}

// stat reports whether the process is a kernel thread, and when it started, in clock ticks since
// boot (fields 9 and 22). The second field, in parentheses, can contain blanks and parentheses.
func (d procDir) stat() (isKernelThread bool, start uint64, err error) {
	const flagsField, startField = 9 - 3, 22 - 3
	const kthread = 0x00200000 // PF_KTHREAD
	b, err := d.read("stat")
	if err != nil {
		return false, 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= startField {
		return false, 0, fmt.Errorf("parse %s/stat: not enough fields", d.file.Name())
	}
	flags, err := strconv.ParseUint(string(fields[flagsField]), 10, 32)
	if err != nil {
		return false, 0, err
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	return flags&kthread != 0, start, err
}

// innerPID returns the PID in the innermost PID namespace (NSpid, Linux 4.1), or pid if unknown.
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

// openThread opens the directory of a thread that has mappings, which all threads share, and
// returns both. It is needed if the thread-group leader has exited before other threads.
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

// reasonOf returns the Reason for an error of reading below /proc/PID.
func reasonOf(err error) Reason {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Exited
	}
	return Unreadable
}
