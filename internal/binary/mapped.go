package binary

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/limit"
)

// Mapped is an executable mapping of a file by a process.
type Mapped struct {
	PID uint32
	// Start and End are addresses in the process. End is exclusive.
	Start, End uint64
	// Offset is the file offset of Start.
	Offset uint64
	Inode  uint64
	// Device is the device of the inode, major << 20 | minor.
	Device uint32
	// Path is relative to the root directory of the process, as in /proc/PID/maps: with the suffix
	// " (deleted)" for a deleted file.
	Path string
	// Time is when the mapping was created (CLOCK_MONOTONIC in ns), if a Watch reported it.
	Time uint64

	thread uint32 // whose /proc entry has the mapping, if not the thread-group leader's
}

// Scan calls yield with each executable file mapping of the given processes, or of all processes if
// pids is empty. It skips processes that exit during the scan. denied lists the processes whose
// mappings cannot be read without CAP_SYS_PTRACE.
//
// Returns a [limit.Error] if a process has too many mappings; the other processes are scanned too.
func Scan(pids []uint32, yield func(*Mapped)) (denied []uint32, err error) {
	if len(pids) == 0 {
		if pids, err = Processes(); err != nil {
			return nil, err
		}
	}
	var exceeded []error
	for _, pid := range pids {
		mapped, err := Executable(pid)
		if errors.Is(err, fs.ErrPermission) {
			denied = append(denied, pid)
		}
		if errors.Is(err, limit.ErrExceeded) {
			exceeded = append(exceeded, err)
		}
		for i := range mapped {
			if mapped[i].Inode != 0 {
				yield(&mapped[i])
			}
		}
	}
	return denied, errors.Join(exceeded...)
}

// Executable lists the executable mappings of a process by address, including those without a file:
// their paths are empty or names in brackets. If there are too many it returns the first ones and a
// [limit.Error].
func Executable(pid uint32) ([]Mapped, error) {
	all, err := executable(pid, pid)
	if err != nil || len(all) > 0 {
		return all, err
	}
	// If the thread-group leader has exited, only the other threads still have mappings.
	tasks, err := numbers(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, fmt.Errorf("read mappings of process %d: %w", pid, err)
	}
	for _, tid := range tasks {
		if all, err := executable(pid, tid); len(all) > 0 {
			return all, err
		}
	}
	return nil, nil
}

// OwnExecutable is Executable for this process. If /proc belongs to another PID namespace,
// os.Getpid does not return this process's PID there.
func OwnExecutable() ([]Mapped, error) {
	pid, err := ownPID()
	if err != nil {
		return nil, err
	}
	return Executable(pid)
}

// ownPID returns the PID of this process in /proc.
func ownPID() (uint32, error) {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return 0, fmt.Errorf("find own process: %w", err)
	}
	pid, err := strconv.ParseUint(link, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("find own process: %w", err)
	}
	return uint32(pid), nil
}

func executable(pid, thread uint32) ([]Mapped, error) {
	name := fmt.Sprintf("/proc/%d/maps", thread)
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read mappings of process %d: %w", pid, err)
	}
	defer file.Close()
	all, err := parseMaps(file, name)
	for i := range all {
		all[i].PID, all[i].thread = pid, thread
	}
	if err != nil {
		return all, fmt.Errorf("read mappings of process %d: %w", pid, err)
	}
	return all, nil
}

// parseMaps reads the executable mappings. If there are too many it returns the first ones and a
// [limit.Error] that names the file.
func parseMaps(r io.Reader, name string) (all []Mapped, err error) {
	var paths limit.Paths
	var exceeded error
	err = limit.Lines(r, func(line []byte) bool {
		m, path, ok := parseMapped(line)
		if !ok {
			return true
		}
		if m.Path, ok = paths.Intern(path); !ok || len(all) >= limit.Mappings {
			exceeded = paths.Exceeded(name)
			return false
		}
		all = append(all, m)
		return true
	})
	return all, errors.Join(err, exceeded)
}

// Processes lists all processes in /proc.
func Processes() ([]uint32, error) {
	pids, err := numbers("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return pids, nil
}

// numbers lists the entries of a directory whose names are numbers.
func numbers(path string) ([]uint32, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []uint32
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 32); err == nil {
			all = append(all, uint32(n))
		}
	}
	return all, nil
}

// parseMapped reads "start-end perms offset major:minor inode   path".
func parseMapped(line []byte) (m Mapped, path []byte, ok bool) {
	var fields [5]string
	for i := range fields {
		field, rest, isMore := bytes.Cut(line, []byte(" "))
		if !isMore || i == 2 && !strings.Contains(fields[1], "x") {
			return m, nil, false
		}
		fields[i], line = string(field), rest
	}
	start, end, _ := strings.Cut(fields[0], "-")
	major, minor, _ := strings.Cut(fields[3], ":")
	device, err := parseDevice(major, minor)
	errs := [5]error{4: err}
	m.Device = device
	m.Start, errs[0] = strconv.ParseUint(start, 16, 64)
	m.End, errs[1] = strconv.ParseUint(end, 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.Inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
	return m, UnescapePath(bytes.TrimLeft(line, " ")), errors.Join(errs[:]...) == nil
}

// UnescapePath decodes a path of /proc/PID/maps, in which the kernel escapes only newlines.
func UnescapePath(path []byte) []byte {
	newline := []byte(`\012`)
	if !bytes.Contains(path, newline) {
		return path
	}
	return bytes.ReplaceAll(path, newline, []byte("\n"))
}

// procID returns the ID of the task whose /proc entry has the mapping. Mappings from perf records
// have only the PID.
func (m *Mapped) procID() uint32 {
	if m.thread != 0 {
		return m.thread
	}
	return m.PID
}

// Link returns a path that leads to the mapped file, even if it is deleted or in another mount
// namespace. Following it requires CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
func (m *Mapped) Link() string {
	return fmt.Sprintf("/proc/%d/map_files/%x-%x", m.procID(), m.Start, m.End)
}

// parseDevice parses hexadecimal device numbers.
func parseDevice(major, minor string) (uint32, error) {
	const minorBits = 20
	a, err := strconv.ParseUint(major, 16, 32-minorBits)
	b, err2 := strconv.ParseUint(minor, 16, minorBits)
	return uint32(a<<minorBits | b), errors.Join(err, err2)
}

// Base returns the file name without directory and " (deleted)".
func (m *Mapped) Base() string {
	return path.Base(strings.TrimSuffix(m.Path, " (deleted)"))
}

// Program returns the path of the process's executable, in the form of Path. It fails if the
// process has exited.
func (m *Mapped) Program() (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/exe", m.procID()))
}

// IsProgram reports whether the file is the process's executable.
func (m *Mapped) IsProgram() bool {
	exe, err := m.Program()
	return err == nil && exe == m.Path
}

// Open opens the mapped file, even if it is deleted or in another mount namespace. This requires
// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN. Without them, Open uses the path, and fails if it leads
// to another inode.
func (m *Mapped) Open() (*File, error) {
	f, err := Open(m.Link())
	if err != nil {
		byPath, pathErr := Open(fmt.Sprintf("/proc/%d/root/%s", m.procID(), m.Path))
		if pathErr != nil {
			return nil, err
		}
		if byPath.ID.inode != m.Inode {
			byPath.Close()
			return nil, err
		}
		f = byPath
	}
	f.Path = m.Path
	return f, nil
}
