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

// ErrVDSO is returned for a function whose implementation in all processes is in the vDSO. It is
// code of the kernel that is in no file, so it cannot be probed.
var ErrVDSO = errors.New("is code of the kernel's vDSO in all processes and cannot be probed")

// implementations finds functions with several implementations (IFUNC) in a file: the ones that
// processes have selected, or all of them if no process has selected one yet.
func (f *Finder) implementations(file *binary.File, s *Spec, match func(string) bool) ([]Place, error) {
	all, err := file.Resolvers()
	if err != nil {
		return nil, err
	}
	selected := slices.DeleteFunc(byName(all), func(fn binary.Function) bool { return !matches(&fn, match) })
	if len(selected) == 0 {
		return nil, nil
	}
	if s.Offset != 0 {
		return nil, fmt.Errorf("%s has several implementations: an offset is not possible", selected[0].Name)
	}
	choices, err := ifunc.Find(file, all, f.PIDs)
	if err != nil {
		return nil, err
	}
	n := notes{Finder: f, file: file, isPattern: s.IsPattern()}
	var places []Place
	seen := map[uint64]bool{}
	for _, fn := range selected {
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
			place.IsCandidate = c == nil
			places = append(places, place)
			n.addShared(&fn, offset, all, choices)
		}
	}
	n.report()
	return places, nil
}

// notes reports to the user which implementations of functions are traced: one message per function
// for a single function, one message for all functions of a pattern.
type notes struct {
	*Finder
	file      *binary.File
	isPattern bool
	selected  int // functions with an implementation that processes have selected
	vdso      []string
	shared    []string
}

// implementations returns the file offsets of the implementations of one function.
func (n *notes) implementations(fn *binary.Function, c *ifunc.Choice) ([]uint64, error) {
	if c == nil {
		offsets, err := candidates(n.file, fn)
		if err == nil {
			n.noteOne("%s of %s has %d implementations, and no process has selected one yet: all are traced",
				fn.Label(), n.file.Path, len(offsets))
		}
		return offsets, err
	}
	if c.VDSO {
		n.vdso = append(n.vdso, fn.Label())
	}
	if len(c.Offsets) == 0 {
		return nil, fmt.Errorf("%s of %s %w", fn.Label(), n.file.Path, ErrVDSO)
	}
	n.selected++
	n.noteOne("%s of %s is traced at %s, the implementation that processes have selected", fn.Label(), n.file.Path, hex(c.Offsets))
	return c.Offsets, nil
}

// noteOne reports a message about a function unless it is one of the matches of a pattern.
func (n *notes) noteOne(format string, args ...any) {
	if !n.isPattern {
		n.note(format, args...)
	}
}

// report reports the messages about all functions.
func (n *notes) report() {
	switch {
	case !n.isPattern || n.selected == 0:
	case n.selected == 1:
		n.note("1 function of %s has several implementations: the ones that processes have selected are traced", n.file.Path)
	default:
		n.note("%d functions of %s have several implementations: the ones that processes have selected are traced", n.selected, n.file.Path)
	}
	if n.isPattern && len(n.shared) > 0 {
		n.note("calls of functions that share code are shown under one name: %s", shortList(n.shared))
	}
	if len(n.vdso) > 0 {
		n.note("not traced in processes that use the kernel's vDSO for them: %s", strings.Join(n.vdso, ", "))
	}
}

func hex(offsets []uint64) string {
	var all []string
	for _, offset := range offsets {
		all = append(all, fmt.Sprintf("%#x", offset))
	}
	return strings.Join(all, ", ")
}

// shortList joins the first five elements, with the number of others.
func shortList(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// addShared reports other functions with the same code: their calls cannot be distinguished.
func (n *notes) addShared(fn *binary.Function, offset uint64, all []binary.Function, choices map[uint64]*ifunc.Choice) {
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
	n.shared = append(n.shared, fn.Label()+" (also "+strings.Join(others, ", ")+")")
	n.noteOne("%s shares that code with %s: their calls are shown as calls of %s", fn.Label(), strings.Join(others, ", "), fn.Label())
}

// candidates returns the file offsets of all implementations that the resolver can select.
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
