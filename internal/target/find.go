package target

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/usdt"
)

// ErrNotFound is returned if nothing has the name.
var ErrNotFound = errors.New("not found")

// Place is an attach point that a spec selects.
type Place struct {
	probe.Target
	Kind   Kind
	Return bool
	// Module is the kernel module of a kernel function, or the path of the file of a user
	// function.
	Module string
	// IsCandidate means that the place is one of several implementations of a function (IFUNC).
	// Some of them may fail to attach.
	IsCandidate bool
	// Args are the arguments of a USDT probe, ArgsErr the reason why they are unknown, or nil.
	Args    []usdt.Arg
	ArgsErr error
	// Operands are these arguments as in the file: SIZE@LOCATION.
	Operands []string
	// IsSyscall means that the place is a system call, whose only argument are its registers.
	IsSyscall bool
	// IsIA32 means that these are the registers of a call of a 32-bit x86 task.
	IsIA32 bool
	// IsCall means that the place is the entry and the return of a function.
	IsCall bool
}

// Finder finds attach points on this machine.
type Finder struct {
	// PIDs, if not empty, restricts paths and names to files of these processes.
	PIDs []uint32
	// Note, if set, is called with messages for the user about the places.
	Note func(string)
	// Tracing is the mount point of tracefs. If it is empty, it is searched for.
	Tracing string
	// Proc is the mount point of procfs, /proc if empty.
	Proc string
}

// FindText parses a probe like [Parse] and returns its places like [Finder.Find].
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

// Find returns the places that the spec selects, sorted by name.
//
// Returns ErrNotFound.
func (f *Finder) Find(s Spec) ([]Place, error) {
	places, err := f.search(&s)
	if err != nil && !(slices.Contains(partsOfC, s.File) && errors.Is(err, ErrNotFound)) {
		return nil, err
	}
	if len(places) == 0 && slices.Contains(partsOfC, s.File) {
		inC := s
		inC.File = "c"
		if places, err := f.Find(inC); err == nil {
			f.note("lib%s is a part of the C library here", s.File)
			return places, nil
		}
	}
	if pattern := mangled(s.Name); len(places) == 0 && s.Kind == User && pattern != "" {
		return nil, fmt.Errorf("%s %s%s: %w (C++ functions have the names that nm shows: try '%s')", noun(s.Kind), in(s.File), s.Name, ErrNotFound, pattern)
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("%s %s%s: %w", noun(s.Kind), in(s.File), s.Name, ErrNotFound)
	}
	return places, nil
}

// List is Find without an error if nothing matches. It does return ErrNotFound for a file that does
// not exist.
func (f *Finder) List(s Spec) ([]Place, error) { return f.search(&s) }

// search returns the places that the spec selects, sorted by name.
func (f *Finder) search(s *Spec) ([]Place, error) {
	match, err := s.matcher()
	if err != nil {
		return nil, fmt.Errorf("parse pattern: %w", err)
	}
	var places []Place
	switch s.Kind {
	case Kernel:
		places, err = f.kernel(s, match.MatchString)
	case User:
		places, err = f.user(s, match.MatchString)
	case Tracepoint:
		places, err = f.tracepoints(s, match.MatchString)
	case USDT:
		places, err = f.usdt(s, match.MatchString)
	}
	if err != nil {
		return nil, err
	}
	for i := range places {
		places[i].Kind, places[i].Return = s.Kind, s.Return
	}
	slices.SortStableFunc(places, func(a, b Place) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Offset, b.Offset))
	})
	return places, nil
}

// partsOfC are libraries that glibc 2.34 has made parts of the C library.
var partsOfC = []string{"pthread", "dl", "rt", "util", "anl"}

func noun(k Kind) string {
	return [...]string{"kernel function", "function", "tracepoint", "USDT probe"}[k]
}

func in(file string) string {
	if file == "" {
		return ""
	}
	return file + ":"
}

// Instances groups places by the hook that they need: "kernel", "user" or "tracepoint", for returns
// with the suffix "_return". To the kernel, USDT probes are places in user functions, so their hook
// is "user". The returned places are in the order of their target IDs.
//
// If isPattern is true, attaching succeeds if some of the places are attached.
func Instances(places []Place, isPattern bool) ([]probe.Instance, []Place) {
	var out []probe.Instance
	ordered := slices.Clone(places)
	slices.SortStableFunc(ordered, func(a, b Place) int { return strings.Compare(a.hook(), b.hook()) })
	for i, p := range ordered {
		if i == 0 || p.hook() != ordered[i-1].hook() {
			out = append(out, probe.Instance{Hook: p.hook(), First: uint64(i), AllowPartial: isPattern})
		}
		last := &out[len(out)-1]
		last.AllowPartial = last.AllowPartial || p.IsCandidate
		last.Targets = append(last.Targets, p.Target)
	}
	return out, ordered
}

func (p *Place) hook() string {
	hook := p.Kind.String()
	if p.Kind == USDT {
		hook = User.String()
	}
	switch {
	case p.IsCall:
		hook += "_call"
	case p.Return:
		hook += "_return"
	}
	return hook
}
