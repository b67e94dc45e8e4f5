package binary

import (
	"bytes"
	"debug/elf"
	"errors"
	"strings"
)

// Function is where a function of a file begins.
type Function struct {
	// Name is without a symbol's version.
	Name string
	// Offset is its place in the file, Size its length, both in bytes.
	Offset, Size uint64
}

// Functions lists the functions that the file defines, by both of its symbol tables. A
// name may be there several times, for several versions; and an offset, by several names.
// Resolvers (STT_GNU_IFUNC) are left out: what they choose has no name.
//
// Returns ErrForeign.
func (f *File) Functions() ([]Function, error) {
	if f.functions != nil {
		return f.functions, nil
	}
	err := f.Parse(func(e *elf.File) error {
		exported, err := e.DynamicSymbols()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return err
		}
		all, err := e.Symbols()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return err
		}
		seen := map[Function]bool{}
		for _, s := range append(exported, all...) {
			if fn, ok := function(e, &s); ok && !seen[fn] {
				seen[fn] = true
				f.functions = append(f.functions, fn)
			}
		}
		return nil
	})
	return f.functions, err
}

func function(e *elf.File, s *elf.Symbol) (Function, bool) {
	if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
		return Function{}, false
	}
	offset, ok := Offset(e, s.Value)
	name, _, _ := strings.Cut(s.Name, "@") // .symtab has versions in the names
	return Function{name, offset, s.Size}, ok
}

// Exports tells whether one of the names is among those of the dynamic symbols: of what
// the file exports, or takes from others. That is quick to find out.
func (f *File) Exports(names ...string) bool {
	found := false
	// What cannot be read exports nothing.
	_ = f.Parse(func(e *elf.File) error {
		s := e.Section(".dynstr")
		if s == nil {
			return nil
		}
		data, err := s.Data()
		for _, name := range names {
			found = found || bytes.Contains(data, []byte("\x00"+name+"\x00"))
		}
		return err
	})
	return found
}
