package target

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/code"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/usdt"
)

// ErrGo is returned for the returns of functions of a Go program. A uretprobe replaces the return
// address on the stack, and the Go runtime crashes when it finds that address while it unwinds or
// moves the stack.
var ErrGo = errors.New("returns of Go functions cannot be traced: a uretprobe crashes Go programs")

// user finds user functions.
func (f *Finder) user(s *Spec, match func(string) bool) ([]Place, error) {
	return f.inFiles(s, func(file *binary.File) ([]Place, error) {
		if err := refuseGo(file, s); err != nil {
			return nil, err
		}
		places, err := functions(file, s, match)
		if err != nil {
			return nil, err
		}
		indirect, err := f.implementations(file, s, match)
		return append(places, indirect...), err
	})
}

// inFiles finds places in each file of the spec. If there are several files, such as those of
// containers, errors in some of them are only reported as notes.
func (f *Finder) inFiles(s *Spec, find func(*binary.File) ([]Place, error)) ([]Place, error) {
	files, err := f.files(s.File)
	if err != nil {
		return nil, err
	}
	var places []Place
	var failed error
	for _, file := range files {
		found, err := find(file)
		if err != nil && len(files) > 1 {
			f.note("%s is not traced: %v", file.Path, err)
		}
		if err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		places = append(places, found...)
	}
	if len(places) == 0 && failed != nil {
		return nil, failed
	}
	return places, nil
}

// functions finds the functions that the file defines, except those with several implementations.
// If several names of a function match, it uses the public name and the default version: c:*alloc
// finds malloc, not __libc_malloc.
func functions(file *binary.File, s *Spec, match func(string) bool) ([]Place, error) {
	all, err := file.Functions()
	if err != nil {
		return nil, err
	}
	seen := map[uint64]bool{}
	var places []Place
	for _, fn := range byName(all) {
		if s.IsPattern() && isFragment(fn.Name) {
			continue
		}
		if !seen[fn.Offset] && matches(&fn, match) {
			seen[fn.Offset] = true
			if err := checkOffset(file, &fn, s.Offset); err != nil {
				return nil, err
			}
			places = append(places, placeIn(file, fn.Label(), fn.Offset+s.Offset))
		}
	}
	return places, nil
}

// ErrWithin is returned for an offset in a function at which no instruction begins.
var ErrWithin = errors.New("no instruction begins there")

// checkOffset returns an error if a probe would be within an instruction of the function, or behind it: the
// kernel writes a breakpoint there, and the program would execute another instruction, or crash.
func checkOffset(file *binary.File, fn *binary.Function, offset uint64) error {
	if offset == 0 {
		return nil
	}
	at := fmt.Sprintf("%s+%#x in %s", fn.Label(), offset, file.Path)
	if offset >= fn.Size {
		return fmt.Errorf("%s: %w: the function has %d bytes", at, ErrWithin, fn.Size)
	}
	return file.Parse(func(e *elf.File) error {
		ok, err := code.Begins(e.Machine, offset, func(at uint64) ([]byte, error) { return file.ReadCode(fn.Offset + at) })
		if err == nil && !ok {
			err = fmt.Errorf("%s: %w: a probe would change what the program does", at, ErrWithin)
		}
		return err
	})
}

// isFragment reports whether a symbol is the rarely executed part of a function, which the compiler has moved
// elsewhere. The function jumps to it: that is no call, and it has no return of its own.
func isFragment(name string) bool {
	_, suffix, ok := strings.Cut(name, ".cold")
	return ok && (suffix == "" || suffix[0] == '.')
}

// mangled returns a pattern for the symbols of a C++ function by its qualified name, or "".
func mangled(name string) string {
	if !strings.Contains(name, "::") {
		return ""
	}
	name, _, _ = strings.Cut(name, "(")
	if name = strings.Trim(name, "*?:"); strings.ContainsAny(name, "*?<") {
		return ""
	}
	pattern := "*"
	for part := range strings.SplitSeq(name, "::") {
		pattern += fmt.Sprintf("%d%s", len(part), part)
	}
	return pattern + "*"
}

// byName returns the functions sorted by name, public names first.
func byName(all []binary.Function) []binary.Function {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b binary.Function) int {
		return cmp.Or(cmp.Compare(underscores(a.Name), underscores(b.Name)), strings.Compare(a.Label(), b.Label()))
	})
	return all
}

// underscores returns the number of underscores that a name starts with. Names that are not public
// have some.
func underscores(name string) int { return len(name) - len(strings.TrimLeft(name, "_")) }

// matches reports whether the name of a function matches, with or without its version.
func matches(fn *binary.Function, match func(string) bool) bool {
	return match(fn.Name) || fn.Version != "" && match(fn.Name+"@"+fn.Version)
}

func placeIn(file *binary.File, name string, offset uint64) Place {
	return Place{Target: probe.Target{Name: name, File: file, Offset: offset}, Module: file.Path}
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

// usdt finds USDT probes by "probe" or "provider:probe". A probe that the compiler has duplicated
// has several places with the same name.
func (f *Finder) usdt(s *Spec, match func(string) bool) ([]Place, error) {
	return f.inFiles(s, func(file *binary.File) ([]Place, error) {
		sites, err := usdt.Read(file)
		if err != nil {
			return nil, err
		}
		var places []Place
		for _, site := range sites {
			name := site.Provider + ":" + site.Name
			if match(name) || match(site.Name) {
				place := placeIn(file, name, site.Offset)
				place.Semaphore, place.Args, place.ArgsErr, place.Operands = site.Semaphore, site.Args, site.Err, site.Operands
				places = append(places, place)
			}
		}
		return places, nil
	})
}
