package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
)

// Stream is a run of a tool whose output goes to a sink as typed values. One process can run several
// streams at the same time: a stream changes neither capabilities nor garbage collection.
type Stream struct {
	Tool *Tool
	// Args are the arguments after the tool's name.
	Args []string
	// Columns, if set, returns the words of --columns that are added to those of the command line, given
	// all columns of a row.
	Columns func(all []column.Column) []string
	// Interval is the time between reports of tools that have some, unless Args set another one.
	Interval time.Duration
	Sink     output.Sink
	// ErrOut receives messages. They start with the name of the tool.
	ErrOut io.Writer
	// Common is what streams share, or nil.
	Common *Common

	mu      sync.Mutex
	session *Session       // while programs are loaded
	shift   *ebpf.Variable // draw_shift of these programs, nil if they count all events
	drawn   uint32         // its value

	end context.CancelCauseFunc // ends the run
}

// Outline describes the output of a stream.
type Outline struct {
	// Kind is the "type" of its rows in JSON.
	Kind string
	// Columns are all columns of a row, or those of a histogram.
	Columns []column.Column
	// Keys are the columns that histograms are grouped by in this run.
	Keys []column.Column
	// Unit is the unit of histograms.
	Unit histogram.Unit
	// IsProfile is set if the output is counts by stack: the sink receives profiles instead of rows.
	IsProfile bool
}

// Runtimes returns the CPU time of each program, as far as the kernel measured it ([ebpf.EnableStats], Linux
// 5.8), and none while no programs are loaded.
func (s *Stream) Runtimes() (map[string]time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return nil, nil
	}
	stats, err := s.session.Objects.Stats(time.Second)
	if err != nil {
		return nil, err
	}
	all := make(map[string]time.Duration, len(stats))
	for _, p := range stats {
		all[p.Program] = time.Duration(p.CPU * float64(time.Second))
	}
	return all, nil
}

// load notes the session, whose programs are loaded and not attached. draws is Plan.Draws.
func (s *Stream) load(session *Session, draws bool) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if draws {
		s.shift = session.Objects.Variables["draw_shift"]
	}
	if err := s.setShift(); err != nil {
		return err
	}
	s.session = session
	return nil
}

func (s *Stream) unload() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.session, s.shift = nil, nil
	}
}

// MaxSample is the largest number for [Stream.Sample].
const MaxSample = 64

// CanSample reports whether [Stream.Sample] has an effect: programs are loaded, and the output is counts of
// independent events, which can be estimated.
func (s *Stream) CanSample() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shift != nil
}

// Sample makes programs count one of n events, chosen at random, as n events. Counts and sums are then estimates
// whose expectation is the right number. n is a power of two up to MaxSample; 1 counts all events. An event that
// is under way keeps the weight that it began with. Before the programs are loaded, it applies to them too.
func (s *Stream) Sample(n uint32) error {
	if n == 0 || n > MaxSample || n&(n-1) != 0 {
		return fmt.Errorf("sample 1 of %d events: not a power of two up to %d", n, MaxSample)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn = uint32(bits.TrailingZeros32(n))
	return s.setShift()
}

func (s *Stream) setShift() error {
	if s.shift == nil {
		return nil
	}
	if err := s.shift.Set(s.drawn); err != nil {
		return fmt.Errorf("sample 1 of %d events: %w", 1<<s.drawn, err)
	}
	return nil
}

// errNotStreamed is returned for command lines that have no stream.
var errNotStreamed = errors.New("not supported here")

// Outline parses the command line and describes the output. It loads and attaches nothing.
//
// Returns flags.ErrUsage for an invalid command line, and PanicError.
func (s *Stream) Outline() (_ *Outline, err error) {
	defer recovered(&err)
	l, src, env, err := s.source()
	if err != nil {
		return nil, err
	}
	spec, err := s.Tool.Object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	d, err := src.Describe(env, spec)
	if err != nil {
		return nil, flags.Usage(err)
	}
	l.selectColumns(d.Columns.All)
	if err := d.Columns.choose(&l.common, l.selection.Columns, d.Text); err != nil {
		return nil, flags.Usage(err)
	}
	_, isProfile := src.(interface{ Formats() []output.Format })
	isProfile = isProfile && src.Kind() != output.KindHistogram // which have formats for heat maps
	return &Outline{Kind: src.Kind(), Columns: d.Columns.All, Keys: d.Keys, Unit: d.Unit, IsProfile: isProfile}, nil
}

// source parses the command line and creates the source.
func (s *Stream) source() (*line, Source, *Env, error) {
	l, err := s.line()
	if err != nil {
		return nil, nil, nil, err
	}
	src, env, err := l.source()
	if err != nil {
		return nil, nil, nil, err
	}
	switch _, isList := src.(interface{ IsSnapshot() }); {
	case isList:
		err = fmt.Errorf("%w: %s: %w: it prints a snapshot and ends", flags.ErrUsage, s.Tool.Name, errNotStreamed)
	case src.Base().Print != nil:
		err = fmt.Errorf("%w: %s: %w: this command line prints a list and ends", flags.ErrUsage, s.Tool.Name, errNotStreamed)
	case src.Base().Exec != "":
		err = fmt.Errorf("%w: --exec: %w", flags.ErrUsage, errNotStreamed)
	}
	return l, src, env, err
}

// line parses the command line.
func (s *Stream) line() (*line, error) {
	l, err := s.Tool.parse(s.Args)
	if errors.Is(err, flags.ErrHelp) {
		return nil, fmt.Errorf("%w: --help: %w", flags.ErrUsage, errNotStreamed)
	}
	if err != nil {
		return nil, err
	}
	for name, isSet := range map[string]bool{
		"usage": l.common.Usage, "version": l.common.Version, "explain": l.common.Explain, "stats": l.common.Stats,
		"output": l.common.Output != string(output.Text), "duration": l.common.Duration > 0, "limit": l.common.Limit > 0,
	} {
		if isSet {
			return nil, fmt.Errorf("%w: --%s: %w", flags.ErrUsage, name, errNotStreamed)
		}
	}
	l.common.Output, l.stream = string(output.Typed), s
	return l, nil
}

// selectColumns adds the columns of the stream to those of --columns.
func (l *line) selectColumns(all []column.Column) {
	if l.stream != nil && l.stream.Columns != nil {
		l.selection.Columns = slices.Concat(l.selection.Columns, l.stream.Columns(all))
	}
}

// Run runs the tool until ctx is done, which is no error, or until an error. Each Stream can run once.
//
// Returns PanicError if the tool panics, in this goroutine or in another one that the run has started. Some
// errors cannot be recovered from, and end the process: fatal errors of the Go runtime, such as a stack overflow
// or concurrent writes to a map.
func (s *Stream) Run(ctx context.Context) (err error) {
	defer recovered(&err)
	l, err := s.line()
	if err != nil {
		return err
	}
	ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	src, env, err := l.source()
	if err == nil {
		err = l.run(ctx, src, env, io.Discard, &shared{w: s.ErrOut}, false)
	}
	var panicked *PanicError
	switch {
	case errors.As(context.Cause(ctx), &panicked):
		return panicked
	case err == nil || isEnd(err) && ctx.Err() != nil:
		return nil
	}
	return fmt.Errorf("%w%s", err, l.remedy(err))
}

// panicked returns the function that ends the run after a panic in one of its goroutines. Without a stream it is
// nil: the panic ends the process.
func (s *Stream) panicked() func(value any, stack []byte) {
	if s == nil {
		return nil
	}
	return func(value any, stack []byte) { s.end(&PanicError{value, stack}) }
}
