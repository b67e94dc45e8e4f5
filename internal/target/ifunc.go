package target

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/code"
	"github.com/corescope/corescope/internal/ifunc"
)

// ErrVDSO is returned for a function that processes run in the vDSO, a part of the kernel: it has no file, and no probe
// can be there.
var ErrVDSO = errors.New("is code of the kernel's vDSO in all processes, where no probe can be")

// chosen finds functions of which the file has several implementations (IFUNC): those that processes have chosen, or
// all of them where no process has yet.
func (f *Finder) chosen(file *binary.File, s *Spec, match func(string) bool) ([]Place, error) {
	all, err := file.Resolvers()
	if err != nil {
		return nil, err
	}
	meant := slices.DeleteFunc(byName(all), func(fn binary.Function) bool { return !isMeant(&fn, match) })
	if len(meant) == 0 {
		return nil, nil
	}
	if s.Offset != 0 {
		return nil, fmt.Errorf("%s has several implementations: an instruction in it has no place of its own", meant[0].Name)
	}
	choices, err := ifunc.Find(file, all, f.PIDs)
	if err != nil {
		return nil, err
	}
	n := notes{Finder: f, file: file, isPattern: s.IsPattern()}
	var places []Place
	seen := map[uint64]bool{}
	for _, fn := range meant {
		c := choices[fn.Offset]
		offsets, err := n.implementations(&fn, c)
		if err != nil && !n.isPattern {
			return nil, err
		}
		for _, offset := range offsets {
			if seen[offset] {
				continue
			}
			seen[offset] = true
			place := placeIn(file, fn.Label(), offset)
			place.Either = c == nil
			places = append(places, place)
			n.shared(&fn, offset, all, choices)
		}
	}
	n.end()
	return places, nil
}

// notes tells which implementations of functions are traced: each by itself where one is asked for.
type notes struct {
	*Finder
	file      *binary.File
	isPattern bool
	chosen    int
	vdso      []string
	same      []string
}

// implementations are the places of one function.
func (n *notes) implementations(fn *binary.Function, c *ifunc.Choice) ([]uint64, error) {
	if c == nil {
		offsets, err := candidates(n.file, fn)
		n.one(err == nil, "%s of %s has %d implementations, and no process has chosen one yet: all are traced", fn.Label(), n.file.Path, len(offsets))
		return offsets, err
	}
	if c.VDSO {
		n.vdso = append(n.vdso, fn.Label())
	}
	if len(c.Offsets) == 0 {
		return nil, fmt.Errorf("%s of %s %w", fn.Label(), n.file.Path, ErrVDSO)
	}
	n.chosen++
	n.one(true, "%s of %s is traced at %s, the implementation that processes have chosen", fn.Label(), n.file.Path, hex(c.Offsets))
	return c.Offsets, nil
}

// one tells something of a function that is asked for by its name.
func (n *notes) one(is bool, format string, args ...any) {
	if is && !n.isPattern {
		n.note(format, args...)
	}
}

// end tells of all functions of a pattern.
func (n *notes) end() {
	if n.isPattern && n.chosen > 0 {
		n.note("%d functions of %s have several implementations: those that processes have chosen are traced", n.chosen, n.file.Path)
	}
	if n.isPattern && len(n.same) > 0 {
		n.note("functions that share code are seen under one name: %s", few(n.same))
	}
	if len(n.vdso) > 0 {
		n.note("not traced where they are code of the kernel's vDSO, which has no file: %s", strings.Join(n.vdso, ", "))
	}
}

func hex(offsets []uint64) string {
	var all []string
	for _, offset := range offsets {
		all = append(all, fmt.Sprintf("%#x", offset))
	}
	return strings.Join(all, ", ")
}

// few names the first few of all.
func few(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// shared tells of other functions that are the same code: their calls cannot be distinguished.
func (n *notes) shared(fn *binary.Function, offset uint64, all []binary.Function, choices map[uint64]*ifunc.Choice) {
	var others []string
	for _, other := range all {
		c := choices[other.Offset]
		if c != nil && other.Offset != fn.Offset && slices.Contains(c.Offsets, offset) && !slices.Contains(others, other.Label()) {
			others = append(others, other.Label())
		}
	}
	if len(others) == 0 {
		return
	}
	slices.Sort(others)
	n.same = append(n.same, fn.Label()+" (also "+strings.Join(others, ", ")+")")
	n.one(true, "%s shares that code with %s: calls of these are seen as calls of %s", fn.Label(), strings.Join(others, ", "), fn.Label())
}

// candidates are all implementations that the resolver may choose.
func candidates(file *binary.File, fn *binary.Function) (offsets []uint64, err error) {
	err = file.Parse(func(e *elf.File) error {
		text, err := code.New(e)
		if err != nil {
			return err
		}
		vaddr, ok := binary.Address(e, fn.Offset)
		if !ok {
			return code.ErrHidden
		}
		found, err := text.Implementations(vaddr, fn.Size)
		for _, vaddr := range found {
			if offset, ok := binary.Offset(e, vaddr); ok {
				offsets = append(offsets, offset)
			}
		}
		return err
	})
	return offsets, err
}
