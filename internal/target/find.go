package target

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/probe"
)

// ErrNotFound is returned when nothing has the name.
var ErrNotFound = errors.New("not found")

// Place is one place that a spec stands for.
type Place struct {
	probe.Target
	Kind   Kind
	Return bool
	// Module is the kernel module of a function, or the file of a user function.
	Module string
	// Either tells that the place is one of several for one function, of which some may do.
	Either bool
}

// Finder finds places on this machine.
type Finder struct {
	// PIDs are the processes whose libraries and mount namespaces are meant, if there are any.
	PIDs []uint32
	// Note, if set, is told what the user should know of the places, in a sentence.
	Note func(string)
	// Tracing is where tracefs is mounted; it is looked for if empty.
	Tracing string
	// Proc is where procfs is mounted, /proc if empty.
	Proc string
}

// FindText reads a probe, as [Parse] does, and returns the places that it stands for, in the
// order of their names.
//
// Returns ErrSpec, ErrNotFound.
func (f *Finder) FindText(text string, isRegexp bool) (Spec, []Place, error) {
	spec, err := Parse(text, isRegexp)
	if err != nil {
		return spec, nil, err
	}
	places, err := f.Find(spec)
	return spec, places, err
}

func (f *Finder) note(format string, args ...any) {
	if f.Note != nil {
		f.Note(fmt.Sprintf(format, args...))
	}
}

// Find returns the places that the spec stands for, in the order of their names.
//
// Returns ErrNotFound.
func (f *Finder) Find(s Spec) ([]Place, error) {
	match, err := s.matcher()
	if err != nil {
		return nil, fmt.Errorf("parse pattern: %w", err)
	}
	var places []Place
	switch s.Kind {
	case Kernel:
		places, err = f.kernel(&s, match.MatchString)
	case User:
		places, err = f.user(&s, match.MatchString)
	case Tracepoint:
		places, err = f.tracepoints(&s, match.MatchString)
	case USDT:
		places, err = f.usdt(&s, match.MatchString)
	}
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("%s %s%s: %w", noun(s.Kind), in(s.File), s.Name, ErrNotFound)
	}
	for i := range places {
		places[i].Kind, places[i].Return = s.Kind, s.Return
	}
	slices.SortStableFunc(places, func(a, b Place) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Offset, b.Offset))
	})
	return places, nil
}

func noun(k Kind) string {
	return [...]string{"kernel function", "function", "tracepoint", "USDT probe"}[k]
}

func in(file string) string {
	if file == "" {
		return ""
	}
	return file + ":"
}

// Instances are the places by the hook that they need: "kernel", "user" (USDT probes too,
// which are places in user functions to the kernel) and "tracepoint", and these with
// "_return". The places come back in the order of the numbers that the programs know them by.
// Where a spec is a pattern, it is enough if some of its places can be had.
func Instances(places []Place, isPattern bool) ([]probe.Instance, []Place) {
	var out []probe.Instance
	ordered := slices.Clone(places)
	slices.SortStableFunc(ordered, func(a, b Place) int { return strings.Compare(a.hook(), b.hook()) })
	for i, p := range ordered {
		if i == 0 || p.hook() != ordered[i-1].hook() {
			out = append(out, probe.Instance{Hook: p.hook(), First: uint64(i), AllowPartial: isPattern})
		}
		last := &out[len(out)-1]
		last.AllowPartial = last.AllowPartial || p.Either
		last.Targets = append(last.Targets, p.Target)
	}
	return out, ordered
}

func (p *Place) hook() string {
	hook := p.Kind.String()
	if p.Kind == USDT {
		hook = User.String()
	}
	if p.Return {
		hook += "_return"
	}
	return hook
}
