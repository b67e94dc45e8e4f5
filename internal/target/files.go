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

// files opens the files that a path, or the name of a library or command, selects.
//
// With PIDs, these are the files that the processes have mapped, or that are below their root
// directories; without a name, all files that they have mapped. Without PIDs, a path is in the mount namespace of this process; a name selects the
// installed file in this mount namespace, and all files with such a name that processes have
// mapped, such as those of containers.
//
// Returns ErrNotFound.
func (f *Finder) files(name string) ([]*binary.File, error) {
	var found []*binary.File
	var err error
	switch isPath := strings.ContainsRune(name, '/'); {
	case name == "":
		found, err = f.allMapped()
	case isPath && (len(f.PIDs) == 0 || !filepath.IsAbs(name)):
		found, err = openAll(name)
	case isPath:
		found, err = f.inRoots(name)
	case len(f.PIDs) > 0:
		found, err = f.library(name)
	default:
		found, err = f.everywhere(name)
	}
	if err != nil {
		return nil, err
	}
	found = unique(found)
	if strings.ContainsRune(name, '/') {
		f.noteReplaced(name, found)
	}
	return found, nil
}

// noteReplaced reports processes that map none of the files at the path, but one that was at the path
// before and was deleted, as by an upgrade. Such a process never calls the functions that are traced.
func (f *Finder) noteReplaced(name string, found []*binary.File) {
	full, err := filepath.Abs(name)
	if err != nil {
		return
	}
	for _, pid := range f.PIDs {
		isFound, isReplaced := false, false
		old := f.mapped(pid, func(m *binary.Mapped, opened *binary.File) bool {
			isFound = isFound || slices.ContainsFunc(found, func(file *binary.File) bool { return file.ID == opened.ID })
			isReplaced = isReplaced || m.Path == full+" (deleted)"
			return isFound
		})
		if old != nil {
			old.Close()
		}
		if isReplaced && !isFound {
			f.note("process %d does not map %s, but a file that had this path before and was deleted: use the name %s to trace that file",
				pid, name, shortName(full))
		}
	}
}

// shortName returns the name that selects the mapped file of a path: that of a library without "lib"
// and ".so", or that of a program.
func shortName(full string) string {
	base := path.Base(full)
	short, ok := strings.CutPrefix(base, "lib")
	name, _, isLibrary := strings.Cut(short, ".so")
	if !ok || !isLibrary {
		return base
	}
	return name
}

func openAll(path string) ([]*binary.File, error) {
	f, err := binary.Open(path)
	if err != nil {
		return nil, err
	}
	return []*binary.File{f}, nil
}

// unique removes and closes duplicates.
func unique(all []*binary.File) []*binary.File {
	seen := map[binary.ID]bool{}
	return slices.DeleteFunc(all, func(f *binary.File) bool {
		isDuplicate := seen[f.ID]
		if seen[f.ID] = true; isDuplicate {
			f.Close()
		}
		return isDuplicate
	})
}

// inRoots opens a path below the root directory of each process. If the path does not exist there,
// it uses a mapped file: one that was deleted or is outside the root directory, such as a program
// of the host.
func (f *Finder) inRoots(name string) ([]*binary.File, error) {
	var found []*binary.File
	var failed error
	for _, pid := range f.PIDs {
		file, err := binary.OpenInRoot(pid, name)
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

// allMapped opens the files of all executable mappings of the processes.
func (f *Finder) allMapped() ([]*binary.File, error) {
	var found []*binary.File
	for _, pid := range f.PIDs {
		mapped, err := binary.Executable(pid)
		if err = f.exceeded(err); err != nil {
			if len(f.PIDs) == 1 {
				return nil, err
			}
			if !errors.Is(err, fs.ErrNotExist) { // it has not exited
				f.note("files of process %d are not read: %v", pid, err)
			}
			continue
		}
		for i := range mapped {
			if m := &mapped[i]; m.Inode != 0 {
				file, err := m.Open()
				if err != nil {
					f.note("%s of process %d is not read: %v", m.Path, pid, err)
					continue
				}
				found = append(found, file)
			}
		}
	}
	return found, nil
}

// isFile reports whether a path in our own mount namespace leads to the file.
func isFile(f *binary.File, path string) bool {
	own, err := binary.Open(path)
	if err != nil {
		return false
	}
	defer own.Close()
	return own.ID == f.ID
}

// mapped returns the first executable mapping's file of a process for which match returns true, or
// nil.
func (f *Finder) mapped(pid uint32, match func(*binary.Mapped, *binary.File) bool) *binary.File {
	all, _ := binary.Executable(pid) // none if the process has exited
	for i := range all {
		if all[i].Inode == 0 {
			continue
		}
		file, err := all[i].Open()
		if err != nil {
			continue
		}
		if match(&all[i], file) {
			return file
		}
		file.Close()
	}
	return nil
}

// library opens the library or command with this name of each process: the files that it has
// mapped, or if there are none, the installed file below its root directory.
func (f *Finder) library(name string) ([]*binary.File, error) {
	var found []*binary.File
	for _, pid := range f.PIDs {
		mapped, err := binary.Executable(pid)
		if err = f.exceeded(err); err != nil {
			return nil, err
		}
		before := len(found)
		for i := range mapped {
			if m := &mapped[i]; m.Inode != 0 && hasName(m, name) {
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

// everywhere opens the installed file in our own mount namespace, and the files with such a name
// that processes have mapped.
func (f *Finder) everywhere(name string) ([]*binary.File, error) {
	var found []*binary.File
	if own, err := findLibrary(name); err == nil {
		if found, err = openAll(own); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	_, err := binary.Scan(nil, func(m *binary.Mapped) {
		// Most processes map the same file at a path: it is opened once.
		if key := fmt.Sprint(m.Inode, m.Path); hasName(m, name) && !seen[key] {
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

// exceeded reports a process with too many mappings to the user, and returns any other error.
func (f *Finder) exceeded(err error) error {
	if errors.Is(err, limit.ErrExceeded) {
		f.note("some mapped files are not searched: %v", err)
		return nil
	}
	return err
}

// hasName reports whether the mapped file is a library or program with that name.
func hasName(m *binary.Mapped, name string) bool {
	base := m.Base()
	for _, pattern := range fileNames(name) {
		if ok, _ := path.Match(pattern, base); ok {
			return true
		}
	}
	return base == name && m.IsProgram()
}

// fileNames returns patterns for the file names of a library.
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

// libraryDirs returns the directories where libraries are installed.
func libraryDirs() []string {
	return []string{
		"/lib64", "/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib", "/usr/lib", "/usr/local/lib", "/usr/lib/*-linux-musl",
	}
}

// installed opens the installed library or command with this name below the root directory of a
// process. It returns nil if there is none.
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
		file, err := binary.OpenInRoot(pid, candidate)
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

// expandInRoot returns the paths below the root directory of a process that match a pattern in its
// last element.
func expandInRoot(pid uint32, pattern string) []string {
	dir, last := path.Split(pattern)
	if !strings.ContainsAny(last, "*?[") {
		return []string{pattern}
	}
	fd, err := binary.InRoot(pid, path.Clean(dir), unix.O_RDONLY|unix.O_DIRECTORY)
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

// isProgram reports whether the file is an ELF file. libc.so can be a linker script instead.
func isProgram(f *binary.File) bool {
	return f.Parse(func(*elf.File) error { return nil }) == nil
}

// findLibrary searches the usual directories for a library, and PATH for a command.
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
		isELF := isProgram(f)
		f.Close()
		if isELF {
			return filepath.EvalSymlinks(candidate)
		}
	}
	return "", fmt.Errorf("library or command %s: %w", name, ErrNotFound)
}
