package target

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

// files opens the files that a path, or the name of a library or command, stands for: those that the processes of
// the run have mapped, and below their roots. Without processes a path is one of our own mount namespace, and a name
// is the file that is found for it here, and all files of such names that processes have mapped, as in containers.
//
// Returns ErrNotFound.
func (f *Finder) files(name string) ([]*binary.File, error) {
	var found []*binary.File
	var err error
	switch isPath := strings.ContainsRune(name, '/'); {
	case isPath && (len(f.PIDs) == 0 || !filepath.IsAbs(name)):
		found, err = openAll(name)
	case isPath:
		found, err = f.inside(name)
	case len(f.PIDs) > 0:
		found, err = f.library(name)
	default:
		found, err = f.everywhere(name)
	}
	if err != nil {
		return nil, err
	}
	return unique(found), nil
}

func openAll(path string) ([]*binary.File, error) {
	f, err := binary.Open(path)
	if err != nil {
		return nil, err
	}
	return []*binary.File{f}, nil
}

// unique leaves out files that are there twice.
func unique(all []*binary.File) []*binary.File {
	seen := map[binary.ID]bool{}
	return slices.DeleteFunc(all, func(f *binary.File) bool {
		isAgain := seen[f.ID]
		if seen[f.ID] = true; isAgain {
			f.Close()
		}
		return isAgain
	})
}

// inside opens a path below the root of each process. A file that a process runs may have no path there any more, as
// one that was deleted, or never had one, as a program of the host's.
func (f *Finder) inside(name string) ([]*binary.File, error) {
	var found []*binary.File
	var failed error
	for _, pid := range f.PIDs {
		file, err := openInRoot(pid, name)
		if err != nil {
			file = f.mapped(pid, func(m *binary.Mapped, opened *binary.File) bool {
				return strings.TrimSuffix(m.Path, " (deleted)") == name || isFile(opened, name)
			})
		}
		if file == nil {
			failed = cmp.Or(failed, fmt.Errorf("find %s in the root of process %d: %w", name, pid, err))
			continue
		}
		file.Path = name
		found = append(found, file)
	}
	if len(found) == 0 {
		return nil, failed
	}
	return found, nil
}

// isFile tells whether a path of our own leads to the file.
func isFile(f *binary.File, path string) bool {
	own, err := binary.Open(path)
	if err != nil {
		return false
	}
	defer own.Close()
	return own.ID == f.ID
}

// mapped returns the first file for which is is true, of those that the process has mapped as code, or nil.
func (f *Finder) mapped(pid uint32, is func(*binary.Mapped, *binary.File) bool) *binary.File {
	all, _ := binary.Executable(pid) // of a process that has ended there are none
	for i := range all {
		if all[i].Inode == 0 {
			continue
		}
		file, err := all[i].Open()
		if err != nil {
			continue
		}
		if is(&all[i], file) {
			return file
		}
		file.Close()
	}
	return nil
}

// openInRoot opens a path as a process sees it: its links lead to what they do there.
func openInRoot(pid uint32, name string) (*binary.File, error) {
	fd, err := inRoot(pid, name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return binary.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

func inRoot(pid uint32, name string, flags uint64) (int, error) {
	root := fmt.Sprintf("/proc/%d/root", pid)
	dir, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// library opens the library or command of that name of each process: what it has mapped, else what is installed in its
// root.
func (f *Finder) library(name string) ([]*binary.File, error) {
	var found []*binary.File
	for _, pid := range f.PIDs {
		mapped, err := binary.Executable(pid)
		if err = f.exceeded(err); err != nil {
			return nil, err
		}
		before := len(found)
		for i := range mapped {
			if m := &mapped[i]; m.Inode != 0 && isCalled(m, name) {
				if file, err := m.Open(); err == nil {
					found = append(found, file)
				}
			}
		}
		if len(found) == before {
			if file := installed(pid, name); file != nil {
				found = append(found, file)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("library or command %s of %s: %w", name, processes(f.PIDs), ErrNotFound)
	}
	return found, nil
}

func processes(pids []uint32) string {
	if len(pids) == 1 {
		return fmt.Sprintf("process %d", pids[0])
	}
	return fmt.Sprintf("%d processes", len(pids))
}

// everywhere opens the file of our own mount namespace, and those of such names that processes have mapped.
func (f *Finder) everywhere(name string) ([]*binary.File, error) {
	var found []*binary.File
	if own, err := findLibrary(name); err == nil {
		if found, err = openAll(own); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	_, err := binary.Scan(nil, func(m *binary.Mapped) {
		// Most processes map the same file of a path.
		if key := fmt.Sprint(m.Inode, m.Path); isCalled(m, name) && !seen[key] {
			seen[key] = true
			if file, err := m.Open(); err == nil {
				found = append(found, file)
			}
		}
	})
	if err = f.exceeded(err); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("library or command %s: %w", name, ErrNotFound)
	}
	return found, nil
}

// exceeded notes that a process has too many mappings, and returns any other error.
func (f *Finder) exceeded(err error) error {
	if errors.Is(err, limit.ErrExceeded) {
		f.note("files that are mapped beyond that are not found: %v", err)
		return nil
	}
	return err
}

// isCalled tells whether a library or program of that name is mapped there.
func isCalled(m *binary.Mapped, name string) bool {
	base := m.Base()
	for _, pattern := range fileNames(name) {
		if ok, _ := path.Match(pattern, base); ok {
			return true
		}
	}
	return base == name && m.IsProgram()
}

// fileNames are patterns of the names that a library's file may have.
func fileNames(name string) []string {
	if strings.ContainsAny(name, `*?[\`) {
		return nil
	}
	names := []string{"lib" + name + ".so", "lib" + name + ".so.*", "lib" + name + "-[0-9]*.so"}
	if name == "c" {
		names = append(names, binary.Libc()...)
	}
	return names
}

// libraryDirs are where libraries are installed, and commands.
func libraryDirs() []string {
	return []string{
		"/lib64", "/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib", "/usr/lib", "/usr/local/lib", "/usr/lib/*-linux-musl",
	}
}

// installed opens the library or command that is installed below the root of a process, or returns nil.
func installed(pid uint32, name string) *binary.File {
	var candidates []string
	for _, dir := range libraryDirs() {
		for _, dir := range expandInRoot(pid, dir) {
			for _, pattern := range fileNames(name) {
				candidates = append(candidates, expandInRoot(pid, path.Join(dir, pattern))...)
			}
		}
	}
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		candidates = append(candidates, path.Join(dir, name))
	}
	for _, candidate := range candidates {
		file, err := openInRoot(pid, candidate)
		if err != nil {
			continue
		}
		if file.Path = candidate; isProgram(file) {
			return file
		}
		file.Close()
	}
	return nil
}

// expandInRoot lists the paths that a pattern in its last part stands for below the root of a process.
func expandInRoot(pid uint32, pattern string) []string {
	dir, last := path.Split(pattern)
	if !strings.ContainsAny(last, "*?[") {
		return []string{pattern}
	}
	fd, err := inRoot(pid, path.Clean(dir), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	opened := os.NewFile(uintptr(fd), dir)
	defer opened.Close()
	names, err := opened.Readdirnames(-1)
	if err != nil {
		return nil
	}
	slices.Sort(names)
	var all []string
	for _, name := range names {
		if ok, _ := path.Match(last, name); ok {
			all = append(all, path.Join(dir, name))
		}
	}
	return all
}

// isProgram tells programs and libraries from the linker's scripts, as which libc.so is there.
func isProgram(f *binary.File) bool {
	return f.Parse(func(*elf.File) error { return nil }) == nil
}

// findLibrary looks where libraries and commands usually are.
func findLibrary(name string) (string, error) {
	var candidates []string
	for _, dir := range libraryDirs() {
		for _, file := range fileNames(name) {
			paths, _ := filepath.Glob(filepath.Join(dir, file)) // the patterns are well-formed
			candidates = append(candidates, paths...)
		}
	}
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		candidates = append(candidates, filepath.Join(dir, name))
	}
	for _, candidate := range candidates {
		f, err := binary.Open(candidate)
		if err != nil {
			continue
		}
		isOne := isProgram(f)
		f.Close()
		if isOne {
			return filepath.EvalSymlinks(candidate)
		}
	}
	return "", fmt.Errorf("library or command %s: %w", name, ErrNotFound)
}
