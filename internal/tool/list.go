package tool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/probe"
)

// List shows what is there, and ends: iterator programs send a struct event for each
// thing (list.bpf.h), and each becomes an R, as with [Events]. What comes or goes
// meanwhile may be listed or not; what is there all the time is listed.
type List[R any] struct {
	Plan
	// Columns are the keys of the columns that text shows.
	Columns []string
	// Row is what every row begins as: a place for what Decode needs to know.
	Row R
	// Keep, if set, is asked whether a decoded row is wanted.
	Keep func(*R) bool
	// Iterators make the list, one after another. Those that only prepare it, by what they
	// leave in maps, send nothing. Plan.Optional names those that a kernel may lack.
	Iterators []Iterator
	// ByProcess are the programs of those that the kernel may run for one process alone
	// when only that is asked for. It then goes by what is of the process's threads.
	ByProcess []string

	rows rows[R]
}

func (l *List[R]) kind() string { return kindEvent }

func (l *List[R]) describe(env *Env, spec *ebpf.CollectionSpec) (*description, error) {
	l.rows = rows[R]{row: &l.Row, keep: l.Keep}
	return l.rows.describe(env, spec, l.Columns)
}

// run tells that it is ready when all is there that takes rights, ahead of the first row.
func (l *List[R]) run(ctx context.Context, s *session) error {
	ctx, cancel, err := s.attach(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	programs, err := l.prepare(s)
	if err != nil {
		return err
	}
	if err := s.ready(); err != nil {
		return err
	}
	return l.rows.iterate(ctx, s, programs)
}

// prepare returns the iterators that this kernel has, and says which it lacks.
func (l *List[R]) prepare(s *session) ([]Iterator, error) {
	var programs []Iterator
	for _, it := range l.Iterators {
		if slices.Contains(l.ByProcess, it.Program) {
			it.PID = s.pid
		}
		err := s.objects.Prepare(it)
		switch {
		case errors.Is(err, probe.ErrUnsupported) && slices.Contains(l.Optional, it.Program):
			fmt.Fprintf(s.errOut, "%s: the list lacks what %v\n", s.tool.Name, err)
		case err != nil:
			return nil, err
		default:
			programs = append(programs, it)
		}
	}
	return programs, nil
}
