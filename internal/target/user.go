package target

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/usdt"
)

// ErrGo is returned for the returns of functions of a Go program. The kernel sees a return
// by an address that it puts on the stack, and Go, which moves its stacks, dies of that.
var ErrGo = errors.New("returns of Go functions cannot be traced without breaking the program")

// user finds functions of a file. Of several names of one function it takes the first.
func (f *Finder) user(s *Spec, match func(string) bool) ([]Place, error) {
	file, err := f.open(s.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := refuseGo(file, s); err != nil {
		return nil, err
	}
	all, err := file.Functions()
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b binary.Function) int { return strings.Compare(a.Name, b.Name) })
	seen := map[uint64]bool{}
	var places []Place
	for _, fn := range all {
		if !seen[fn.Offset] && match(fn.Name) {
			seen[fn.Offset] = true
			places = append(places, Place{Target: probe.Target{Name: fn.Name, File: file.Path, Offset: fn.Offset + s.Offset}, Module: file.Path})
		}
	}
	return places, nil
}

func refuseGo(file *binary.File, s *Spec) error {
	if !s.Return {
		return nil
	}
	return file.Parse(func(e *elf.File) error {
		if e.Section(".gopclntab") != nil {
			return ErrGo
		}
		return nil
	})
}

// usdt finds probes that are built in, by "probe" or "provider:probe". One that the compiler
// has made several of is several places of one name.
func (f *Finder) usdt(s *Spec, match func(string) bool) ([]Place, error) {
	file, err := f.open(s.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sites, err := usdt.Read(file)
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, site := range sites {
		name := site.Provider + ":" + site.Name
		if match(name) || match(site.Name) {
			places = append(places, Place{
				Target: probe.Target{Name: name, File: file.Path, Offset: site.Offset, Semaphore: site.Semaphore}, Module: file.Path,
			})
		}
	}
	return places, nil
}

func (f *Finder) open(name string) (*binary.File, error) {
	path, err := f.path(name)
	if err != nil {
		return nil, err
	}
	return binary.Open(path)
}

// path finds a file by its path, or by the name of a library or command.
func (f *Finder) path(name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return f.inside(name), nil
	}
	find := f.Library
	if find == nil {
		find = findLibrary
	}
	return find(name, f.PID)
}

// inside is a path as the process sees it.
func (f *Finder) inside(path string) string {
	if f.PID == 0 || !filepath.IsAbs(path) {
		return path
	}
	if inner := filepath.Join("/proc", fmt.Sprint(f.PID), "root", path); sameFile(inner, path) {
		return path
	} else if _, err := os.Stat(inner); err == nil {
		return inner
	}
	return path
}

func sameFile(a, b string) bool {
	sa, errA := os.Stat(a)
	sb, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(sa, sb)
}

// findLibrary looks where libraries and commands usually are.
func findLibrary(name string, _ int) (string, error) {
	for _, dir := range []string{"/lib64", "/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib", "/usr/lib", "/usr/local/lib"} {
		for _, file := range []string{"lib" + name + ".so", "lib" + name + ".so.*"} {
			for _, path := range glob(filepath.Join(dir, file)) {
				if isELF(path) {
					return filepath.EvalSymlinks(path)
				}
			}
		}
	}
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		if path := filepath.Join(dir, name); isELF(path) {
			return filepath.EvalSymlinks(path)
		}
	}
	return "", fmt.Errorf("library or command %s: %w", name, ErrNotFound)
}

func glob(pattern string) []string {
	paths, _ := filepath.Glob(pattern) // the pattern is well-formed
	return paths
}

// isELF tells programs and libraries from the linker's scripts, as which libc.so is there.
func isELF(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	return file.Close() == nil
}
