package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
)

// List is a snapshot: iterator programs send a struct event for each object (list.bpf.h), and each
// becomes an R, as with [Events]; the method Next is called at the end. Objects that are created or
// removed meanwhile may or may not be listed; all others are.
type List[R any] struct {
	tool.Plan
	// Columns lists the keys of the columns in text output.
	Columns []string
	// Row is the initial value of the row. Decode can use its fields.
	Row R
	// Keep, if set, reports whether a decoded row is shown.
	Keep func(*R) bool
	// Iterators lists the iterator programs in the order in which they run. Programs that only fill
	// maps for later ones send no events. Plan.Optional lists programs that a kernel may not
	// support.
	Iterators []tool.Iterator
	// ByProcess lists the iterator programs that run for one process only if --pid selects exactly
	// one. They then iterate over its threads.
	ByProcess []string
	// Each, if set, replaces the programs: it reads the objects, and calls show after it has filled
	// Row with one. R has a time, which is set.
	Each func(show func() error) error

	rows rows
}

// IsSnapshot marks sources whose run ends by itself.
func (l *List[R]) IsSnapshot() {}

func (l *List[R]) Kind() string { return output.KindEvent }

func (l *List[R]) Describe(env *tool.Env, spec *ebpf.CollectionSpec) (*tool.Description, error) {
	l.rows = rows{row: &l.Row, keep: kept(l.Keep, &l.Row)}
	if l.Each != nil {
		return l.rows.describeOwn(env, l.Columns)
	}
	return l.rows.Describe(env, spec, l.Columns)
}

// Run reports ready ahead of the first row, when everything that requires capabilities is open.
func (l *List[R]) Run(ctx context.Context, s *tool.Session) error {
	ctx, cancel, err := s.Attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	programs, err := l.prepare(s)
	if err != nil {
		return err
	}
	s.SetList()
	if err := s.Ready(); err != nil {
		return err
	}
	if l.Each != nil {
		return l.rows.read(ctx, s, l.Each)
	}
	if err := l.rows.iterate(ctx, s, programs); err != nil {
		return err
	}
	return errors.Join(l.rows.showDelayed(s, true), s.Out.Flush())
}

// prepare returns the iterator programs that this kernel supports, and reports the others.
func (l *List[R]) prepare(s *tool.Session) ([]tool.Iterator, error) {
	var programs []tool.Iterator
	for _, it := range l.Iterators {
		if slices.Contains(l.ByProcess, it.Program) {
			it.PID = s.PID
		}
		err := s.Objects.Prepare(it)
		switch {
		case errors.Is(err, probe.ErrUnsupported) && slices.Contains(l.Optional, it.Program):
			fmt.Fprintf(s.ErrOut, "%s: the list is incomplete: %v\n", s.Name(), err)
		case err != nil:
			return nil, err
		default:
			programs = append(programs, it)
		}
	}
	return programs, nil
}
