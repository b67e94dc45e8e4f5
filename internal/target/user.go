package target

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/probe"
)

// ErrGo is returned for the returns of functions of a Go program. The kernel sees a return
// by an address that it puts on the stack, and Go, which moves its stacks, dies of that.
var ErrGo = errors.New("returns of Go functions cannot be traced without breaking the program")

// user finds functions of a file. Of several names of one function it takes the first.
func (f *Finder) user(s *Spec, match func(string) bool) ([]Place, error) {
	path, err := f.path(s.File)
	if err != nil {
		return nil, err
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	if s.Return && file.Section(".gopclntab") != nil {
		return nil, fmt.Errorf("%s: %w", path, ErrGo)
	}
	seen := map[uint64]bool{}
	var places []Place
	for _, sym := range functions(file) {
		offset, ok := fileOffset(file, sym.Value)
		if !ok || seen[offset] || !match(sym.Name) {
			continue
		}
		seen[offset] = true
		places = append(places, Place{Target: probe.Target{Name: sym.Name, File: path, Offset: offset + s.Offset}, Module: path})
	}
	return places, nil
}

// functions are those that the file has itself, by name. Indirect ones (GNU_IFUNC) are left
// out: what is there runs once, to choose the function that is called.
func functions(file *elf.File) []elf.Symbol {
	static, _ := file.Symbols() // a stripped file has none
	dynamic, _ := file.DynamicSymbols()
	all := slices.DeleteFunc(slices.Concat(dynamic, static), func(s elf.Symbol) bool {
		return elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || s.Value == 0
	})
	slices.SortStableFunc(all, func(a, b elf.Symbol) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// fileOffset is where in the file an address is.
func fileOffset(file *elf.File, addr uint64) (uint64, bool) {
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Vaddr <= addr && addr < p.Vaddr+p.Filesz {
			return addr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
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
