package binary

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// Mapped is an executable mapping of a file by a process.
type Mapped struct {
	PID uint32
	// Start and End are addresses.
	Start, End uint64
	// Offset is of Start in the file.
	Offset uint64
	Inode  uint64
	// Path is below the root of the process, as the kernel writes it: "PATH (deleted)"
	// for a file that is gone.
	Path string
}

// Scan calls yield with all executable mappings of files of the processes, or of all
// processes when none are given. Processes that end meanwhile are left out. closed are
// those whose mappings this process may not read (CAP_SYS_PTRACE).
func Scan(pids []uint32, yield func(*Mapped)) (closed int, err error) {
	if len(pids) == 0 {
		if pids, err = processes(); err != nil {
			return 0, err
		}
	}
	for _, pid := range pids {
		mapped, err := Executable(pid)
		if errors.Is(err, fs.ErrPermission) {
			closed++
		}
		for i := range mapped {
			if mapped[i].Inode != 0 {
				yield(&mapped[i])
			}
		}
	}
	return closed, nil
}

// Executable lists the executable mappings of a process by address, those of no file too:
// their paths are names in brackets, or empty.
func Executable(pid uint32) ([]Mapped, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("read mappings of process %d: %w", pid, err)
	}
	var all []Mapped
	for line := range bytes.Lines(maps) {
		if m, ok := parseMapped(string(bytes.TrimSuffix(line, []byte("\n")))); ok {
			m.PID = pid
			all = append(all, m)
		}
	}
	return all, nil
}

func processes() ([]uint32, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []uint32
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 32); err == nil {
			pids = append(pids, uint32(pid))
		}
	}
	return pids, nil
}

// parseMapped reads "start-end perms offset major:minor inode   path".
func parseMapped(line string) (m Mapped, ok bool) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 || !strings.Contains(fields[1], "x") {
		return m, false
	}
	start, end, _ := strings.Cut(fields[0], "-")
	var errs [4]error
	m.Start, errs[0] = strconv.ParseUint(start, 16, 64)
	m.End, errs[1] = strconv.ParseUint(end, 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.Inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
	m.Path = strings.TrimLeft(fields[5], " ")
	return m, errors.Join(errs[:]...) == nil
}

// Base is the name of the file.
func (m *Mapped) Base() string {
	return path.Base(strings.TrimSuffix(m.Path, " (deleted)"))
}

// IsProgram tells whether the file is what the process executes.
func (m *Mapped) IsProgram() bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.PID))
	return err == nil && exe == m.Path
}

// Open opens the mapped file itself, which works for files that are deleted or in another
// mount namespace. That takes CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN; without, the
// path has to lead to the same inode.
func (m *Mapped) Open() (*File, error) {
	f, err := Open(fmt.Sprintf("/proc/%d/map_files/%x-%x", m.PID, m.Start, m.End))
	if err != nil {
		byPath, pathErr := Open(fmt.Sprintf("/proc/%d/root/%s", m.PID, m.Path))
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
