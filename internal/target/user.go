package target

import (
	"cmp"
	"debug/elf"
	"errors"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/usdt"
)

// ErrGo is returned for the returns of functions of a Go program. The kernel sees a return
// by an address that it puts on the stack, and Go, which moves its stacks, dies of that.
var ErrGo = errors.New("returns of Go functions cannot be traced without breaking the program")

// user finds functions of files.
func (f *Finder) user(s *Spec, match func(string) bool) ([]Place, error) {
	return f.inFiles(s, func(file *binary.File) ([]Place, error) {
		if err := refuseGo(file, s); err != nil {
			return nil, err
		}
		places, err := functions(file, s, match)
		if err != nil {
			return nil, err
		}
		chosen, err := f.chosen(file, s, match)
		return append(places, chosen...), err
	})
}

// inFiles finds places in each file of the spec. Where there are several, as those of containers, it is enough that
// some can be read: the others are told.
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
			f.note("%s is left out: %v", file.Path, err)
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

// functions finds those that the file has itself. Of several names of one that match it takes the
// public one, so that c:*alloc shows malloc and not __libc_malloc, and the default version.
func functions(file *binary.File, s *Spec, match func(string) bool) ([]Place, error) {
	all, err := file.Functions()
	if err != nil {
		return nil, err
	}
	seen := map[uint64]bool{}
	var places []Place
	for _, fn := range byName(all) {
		if !seen[fn.Offset] && isMeant(&fn, match) {
			seen[fn.Offset] = true
			places = append(places, placeIn(file, fn.Label(), fn.Offset+s.Offset))
		}
	}
	return places, nil
}

func byName(all []binary.Function) []binary.Function {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b binary.Function) int {
		return cmp.Or(cmp.Compare(underscores(a.Name), underscores(b.Name)), strings.Compare(a.Label(), b.Label()))
	})
	return all
}

// underscores is how many a name begins with: names that are not public have some.
func underscores(name string) int { return len(name) - len(strings.TrimLeft(name, "_")) }

// isMeant tells whether a function is named, with its version or without.
func isMeant(fn *binary.Function, match func(string) bool) bool {
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

// usdt finds probes that are built in, by "probe" or "provider:probe". One that the compiler
// has made several of is several places of one name.
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
				place.Semaphore = site.Semaphore
				places = append(places, place)
			}
		}
		return places, nil
	})
}
