package binary

import (
	"bytes"
	"debug/elf"
	"errors"
	"strings"

	"github.com/corescope/corescope/internal/limit"
)

// Function is a function that a file defines.
type Function struct {
	// Name excludes the symbol version, which is Version. Version is "" if there is none.
	Name, Version string
	// Old is set for a version that is not the default: only existing programs that were linked
	// with it use it.
	Old bool
	// Offset is the file offset and Size the length, in bytes.
	Offset, Size uint64
}

// Label returns the name, followed by @ and the version unless it is the default version.
func (f *Function) Label() string {
	if f.Old {
		return f.Name + "@" + f.Version
	}
	return f.Name
}

// Functions lists the functions that the file defines, from both symbol tables. A name can occur
// several times, with different versions, and an offset with different names. Resolvers are not
// included.
//
// Returns ErrForeign.
func (f *File) Functions() ([]Function, error) {
	if err := f.readSymbols(); err != nil {
		return nil, err
	}
	return f.functions, nil
}

// Resolvers lists the functions that select one of several implementations when a program is loaded
// (STT_GNU_IFUNC). Name is the symbol through which callers reach the selected implementation.
//
// Returns ErrForeign.
func (f *File) Resolvers() ([]Function, error) {
	if err := f.readSymbols(); err != nil {
		return nil, err
	}
	return f.resolvers, nil
}

func (f *File) readSymbols() error {
	if f.functions != nil || f.resolvers != nil {
		return nil
	}
	return f.Parse(func(e *elf.File) error {
		exported, err := ReadSymbols(e, elf.SHT_DYNSYM, f.Path)
		if err != nil {
			return err
		}
		all, err := ReadSymbols(e, elf.SHT_SYMTAB, f.Path)
		if err != nil {
			return err
		}
		if f.functions, err = functions(e, exported, all, elf.STT_FUNC, f.Path); err != nil {
			return err
		}
		f.resolvers, err = functions(e, exported, all, elf.STT_GNU_IFUNC, f.Path)
		return err
	})
}

// functions lists the defined symbols of a type, without duplicates.
func functions(e *elf.File, exported, all *Symbols, kind elf.SymType, path string) ([]Function, error) {
	var out []Function
	seen := map[Function]bool{}
	for i := range exported.Len() {
		fn, ok := function(e, exported, i, kind)
		if !ok {
			continue
		}
		fn.Version, fn.Old = exported.Version(i)
		if !seen[fn] {
			seen[fn] = true
			out = append(out, fn)
		}
	}
	for i := range all.Len() {
		fn, ok := function(e, all, i, kind)
		if !ok {
			continue
		}
		if len(out) >= limit.Functions {
			return nil, &limit.Error{Input: path, Max: limit.Functions, Unit: "functions"}
		}
		name, version, isVersioned := strings.Cut(fn.Name, "@")
		if fn.Name = name; isVersioned { // memcpy@@GLIBC_2.14 is the default version
			fn.Version = strings.TrimPrefix(version, "@")
			fn.Old = fn.Version == version
		}
		if !seen[fn] {
			seen[fn] = true
			out = append(out, fn)
		}
	}
	return out, nil
}

func function(e *elf.File, t *Symbols, i int, kind elf.SymType) (Function, bool) {
	s := t.At(i)
	if elf.ST_TYPE(s.Info) != kind || elf.SectionIndex(s.Shndx) == elf.SHN_UNDEF {
		return Function{}, false
	}
	offset, ok := Offset(e, s.Value)
	return Function{Name: t.Name(&s), Offset: offset, Size: s.Size}, ok
}

// Exports reports whether the file exports or imports one of the names as a dynamic symbol. It is
// faster than Functions.
//
// Returns a [limit.Error]. A file that cannot be parsed exports nothing.
func (f *File) Exports(names ...string) (found bool, err error) {
	err = f.Parse(func(e *elf.File) error {
		s := e.Section(".dynstr")
		if s == nil {
			return nil
		}
		data, err := limit.Section(s, f.Path, limit.SymbolNames)
		for _, name := range names {
			found = found || bytes.Contains(data, []byte("\x00"+name+"\x00"))
		}
		return err
	})
	if !errors.Is(err, limit.ErrExceeded) {
		err = nil
	}
	return found, err
}
