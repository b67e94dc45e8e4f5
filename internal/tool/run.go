package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// Exit codes of every tool.
const (
	ExitOK           = 0
	ExitFailure      = 1
	ExitUsage        = 2
	ExitNotPermitted = 3
	ExitUnsupported  = 4
	ExitLost         = 5
)

// errLost ends a run with --strict.
var errLost = errors.New("events were lost (--strict)")

// Run runs the tool until a limit is reached or ctx is done, and returns its exit code. args are
// the arguments after the tool's name. Rows are written to out, everything else to errOut (see
// package output).
func Run(ctx context.Context, t *Tool, args []string, out, errOut io.Writer) int {
	return t.begin(args).run(ctx, out, errOut, false)
}

// Begin is Run for a process that does nothing else: once all hooks are attached, it drops all
// capabilities that the run no longer needs. The returned function must be called; meanwhile, the object is
// being decoded.
func Begin(t *Tool, args []string, out, errOut io.Writer) (run func(context.Context) int) {
	b := t.begin(args)
	return func(ctx context.Context) int { return b.run(ctx, out, errOut, true) }
}

// IsRemover reports whether this process only removes the probes of another run, Remove does that and
// returns the exit code.
func IsRemover(args []string) bool { return args[0] == probe.RemoverName }
func Remove() int                  { return probe.Remove() }

// beginning is a command line whose object is being decoded.
type beginning struct {
	line     *line
	parseErr error
	src      Source // nil if there is an error, or nothing is observed
	env      *Env
	err      error // of src
}

// begin evaluates a command line. Meanwhile it begins to decode the object, which takes longer than everything
// until it is needed.
func (t *Tool) begin(args []string) *beginning {
	usualGC := debug.SetGCPercent(startGC)
	without := make(chan []string, 1)
	defer close(without)
	first := FirstVariants(func() []string { return <-without })
	object := sync.OnceValues(func() (*ebpf.CollectionSpec, error) { return t.Object(first) })
	go object()
	l, err := t.parse(args)
	l.object, l.rest = object, func() (*ebpf.CollectionSpec, error) { return t.Object() }
	l.started = func() { debug.SetGCPercent(usualGC) }
	b := &beginning{line: l, parseErr: err}
	if err != nil || l.common.Usage || l.common.Version {
		return b
	}
	if b.src, b.env, b.err = l.source(); b.err == nil {
		without <- l.withoutAny(b.src.Base())
	}
	return b
}

func (b *beginning) run(ctx context.Context, out, errOut io.Writer, own bool) int {
	errOut = &shared{w: errOut}
	l, t, err := b.line, b.line.tool, b.parseErr
	defer l.started()
	switch {
	case errors.Is(err, flags.ErrHelp):
		err = errors.Join(err, l.help(out))
	case l.common.Usage:
		err = l.usage(out)
	case l.common.Version:
		err = t.printVersion(out)
	case err != nil:
		err = fmt.Errorf("%w (see %s --help)", err, t.Name)
	default:
		if err = b.err; err == nil {
			err = l.run(ctx, b.src, b.env, out, errOut, own)
		}
		if exitCode(err) == ExitUsage && !errors.Is(err, flags.ErrUsage) {
			err = flags.Usage(err)
		}
	}
	if err != nil && !isEnd(err) {
		fmt.Fprintf(errOut, "%s: %v%s\n", t.Name, err, l.remedy(err))
	}
	return exitCode(err)
}

// isEnd reports whether the error is a regular end: --help, a closed output, or a signal while
// programs were being attached.
func isEnd(err error) bool {
	return errors.Is(err, flags.ErrHelp) || errors.Is(err, probe.ErrStopped) || IsClosed(err)
}

func exitCode(err error) int {
	switch {
	case err == nil, isEnd(err):
		return ExitOK
	case errors.Is(err, flags.ErrUsage), errors.Is(err, column.ErrUnknown), errors.Is(err, probe.ErrTooLong),
		errors.Is(err, probe.ErrNoVariant), errors.Is(err, probe.ErrNoAttachPoint), errors.Is(err, probe.ErrOtherBTF), errors.Is(err, probe.ErrUnsafeReturn),
		errors.Is(err, probe.ErrExited):
		return ExitUsage
	case errors.Is(err, probe.ErrNotPermitted):
		return ExitNotPermitted
	case errors.Is(err, probe.ErrUnsupported), errors.Is(err, probe.ErrUnsafeEntry):
		return ExitUnsupported
	case errors.Is(err, errLost):
		return ExitLost
	}
	return ExitFailure
}

// startGC is the GC percentage (GOGC) until all hooks are attached. With the default of 100, garbage
// collection takes a fifth of that time. Less than 16 MB are usually allocated.
const startGC = 400

func (l *line) run(ctx context.Context, src Source, env *Env, out, errOut io.Writer, own bool) error {
	if print := src.Base().Print; print != nil {
		return print(out)
	}
	if err := l.start(src.Base()); err != nil {
		return err
	}
	if l.command != nil {
		defer l.command.close()
	}
	env.warn = func(err error) { fmt.Fprintf(errOut, "%s: %v\n", l.tool.Name, err) }
	s, err := l.tool.open(l, src, env, env.warn)
	if err != nil {
		return err
	}
	defer s.Objects.Close()
	s.Objects.HandOver = own
	if err := l.stream.load(s, src.Base().Draws); err != nil {
		return err
	}
	defer l.stream.unload()
	if l.common.Explain {
		s.Objects.Stop = ctx.Done()
		return s.explain(out)
	}
	ctx, watch, stop := untilClosed(ctx, out)
	defer stop()
	interrupted := ctx // done by a signal, not by the end of the command
	if l.command != nil {
		ctx, stop = l.command.until(ctx)
		defer stop()
	}
	s.command, s.started, s.watch = l.command, l.started, watch
	s.Terminal, s.ErrOut, s.own = out, &Messages{Out: errOut}, own
	env.warn = func(err error) { fmt.Fprintf(s.ErrOut, "%s: %v\n", l.tool.Name, err) }
	s.Out = l.writer(s)
	return errors.Join(s.runSource(ctx, src), s.endCommand(interrupted))
}

// writer returns the writer of the output.
func (l *line) writer(s *Session) *output.Writer {
	format := output.Format(l.common.Output)
	o := output.Options{
		Format: format, Name: l.tool.Name, NoHeader: l.common.NoHeader || s.blocks && format == output.Text,
		Columns: s.columns, Out: s.Terminal, Err: s.ErrOut, Stamps: os.Getenv(output.StampsVariable) != "",
	}
	if l.stream != nil {
		o.Sink, s.Interval = l.stream.Sink, l.stream.Interval
	}
	return output.New(o)
}

// runSource runs the source and writes the summary.
func (s *Session) runSource(ctx context.Context, src Source) error {
	if s.common.Stats || src.Base().Measure {
		if err := s.stats.begin(); err != nil {
			return err
		}
		defer s.stats.close()
	}
	runErr := src.Run(ctx, s)
	if err := errors.Join(runErr, s.Objects.Detach()); err != nil {
		return err
	}
	lost, err := s.summary()
	if finish := src.Base().Finish; finish != nil {
		err = errors.Join(err, finish(lost))
	}
	switch {
	case err != nil:
		return err
	case lost > 0 && s.common.Strict:
		return errLost
	}
	return s.Objects.Unobserved()
}

// line is a parsed command line.
type line struct {
	tool      *Tool
	common    common
	tasks     tasks
	selection selection
	returns   returns
	set       *flags.Set
	options   any
	build     func(*Env) (Source, error)
	usual     func() (Source, error) // the source with default options
	command   *command               // of --exec, or nil
	fixed     int                    // number of positional arguments that an alias sets
	stream    *Stream                // of a run with a sink, or nil
	started   func()                 // called when all hooks are attached, or nil
	// object decodes the object. If that has FirstVariants only, rest decodes all, otherwise it is nil.
	object, rest func() (*ebpf.CollectionSpec, error)
}

func (t *Tool) parse(args []string) (*line, error) {
	l, err := t.newLine()
	if err != nil {
		return l, err
	}
	groups, err := l.groups()
	if err != nil {
		return l, err
	}
	for _, g := range groups {
		for _, options := range g.options {
			if err := l.set.Add(options, t.Shorts); err != nil {
				return l, err
			}
		}
	}
	l.set.Fix(l.fixed)
	l.describeOutput(l.set)
	if err := l.set.Parse(args); err != nil {
		return l, err
	}
	return l, l.common.check()
}

// Format parses a command line and returns its output format.
//
// Returns flags.ErrUsage.
func (t *Tool) Format(args []string) (output.Format, error) {
	l, err := t.parse(args)
	if errors.Is(err, flags.ErrHelp) {
		return output.Text, nil
	}
	return output.Format(l.common.Output), err
}

// newLine returns a command line with default options.
func (t *Tool) newLine() (*line, error) {
	l := &line{tool: t, object: func() (*ebpf.CollectionSpec, error) { return t.Object() }, set: flags.New(t.Name), common: common{Output: string(output.Text)}}
	l.usual = sync.OnceValues(t.Source)
	l.options, l.build = t.build()
	var err error
	l.fixed, err = t.setDefaults(l.options)
	return l, err
}

// source creates the source of the command line.
func (l *line) source() (Source, *Env, error) {
	env := newEnv()
	if l.stream != nil && l.stream.Common != nil {
		env.use(l.stream.Common)
	}
	if err := checkIDs(env, l.set.IDs()); err != nil {
		return nil, nil, err
	}
	kernel, err := l.common.kernel()
	if err != nil {
		return nil, nil, err
	}
	env.kernel, env.PIDs, env.tasks, env.HasFilter = kernel, l.tasks.PID, &l.tasks, l.common.Filter != ""
	env.IsExported = l.stream != nil
	if !l.tool.NoPrograms {
		env.prefetch()
	}
	src, err := l.build(env)
	if errors.Is(err, probe.ErrUnsupported) {
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, flags.Usage(err)
	}
	if l.stream != nil {
		return src, env, nil
	}
	return src, env, l.common.checkOutput(src)
}

// reportAttempts reports the attach types tried for each hook, and the results.
func (s *Session) reportAttempts() {
	for hook, attempts := range s.Objects.Tried {
		for _, a := range attempts {
			fmt.Fprintf(s.ErrOut, "%s: hook %s: %s: %s\n", s.tool.Name, hook, a.Variant, probe.Reason(a.Err))
			for _, t := range a.Targets {
				fmt.Fprintf(s.ErrOut, "%s: hook %s: %s: attached to %s\n", s.tool.Name, hook, a.Variant, t)
			}
		}
	}
}

// failuresShown is the number of failed targets that are named without --verbose.
const failuresShown = 5

// reportFailedTargets reports the targets that failed to attach.
func (s *Session) reportFailedTargets() {
	failed := s.Objects.FailedTargets
	shown := len(failed)
	if !s.common.Verbose {
		shown = min(shown, failuresShown)
	}
	for _, r := range failed[:shown] {
		fmt.Fprintf(s.ErrOut, "%s: not attached to %s: %s\n", s.tool.Name, r.Target, probe.Reason(r.Err))
	}
	if rest := len(failed) - shown; rest > 0 {
		fmt.Fprintf(s.ErrOut, "%s: not attached to %d more\n", s.tool.Name, rest)
	}
}

// reportNamespace reports that rows have IDs of another PID namespace than flags and /proc.
func (s *Session) reportNamespace() {
	ns, _ := s.Env.PIDNamespace() // OtherProc is valid even with an error
	switch {
	case ns.Initial || !s.tool.Tasks:
	case ns.OtherProc:
		fmt.Fprintf(s.ErrOut, "%s: cannot read files of processes: %v (%s)\n", s.tool.Name, system.ErrOtherProc, mountProc)
	case ns.Inode != 0:
		fmt.Fprintf(s.ErrOut, "%s: running in a child PID namespace: --pid and --tid use its IDs, rows use those of the initial PID namespace\n", s.tool.Name)
	}
}

// Attach attaches all hooks. The returned context is done after --duration.
func (s *Session) Attach(ctx context.Context) (context.Context, context.CancelFunc, error) {
	s.Objects.Stop = ctx.Done()
	if err := s.Objects.Attach(); err != nil {
		return nil, nil, err
	}
	s.watch()
	if d := time.Duration(s.common.Duration); d > 0 {
		ctx, cancel := context.WithTimeout(ctx, d)
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel, nil
}

// Serialize makes the Go code of the process run on one CPU at a time until restore is called, if the
// process exists for this run alone. While a goroutine waits for events in a system call and another CPU
// is free, a thread of the Go runtime (sysmon) checks every 20 us to 10 ms whether it must take the place
// of the waiting one. At 1,000 events per second that is half of the CPU time of a tool.
func (s *Session) Serialize() (restore func()) {
	if !s.own {
		return func() {}
	}
	before := runtime.GOMAXPROCS(1)
	return sync.OnceFunc(func() { runtime.GOMAXPROCS(before) })
}

// Ready reports that all hooks are attached. Everything that requires capabilities is open by then.
func (s *Session) Ready() error {
	s.begun = time.Now()
	if err := s.reportUninspected(); err != nil {
		return err
	}
	if err := s.confine(); err != nil {
		return err
	}
	if s.started != nil {
		s.started()
	}
	if s.common.Verbose {
		s.reportAttempts()
	}
	s.reportFailedTargets()
	s.reportNamespace()
	if v := s.Objects.Variables["held_begun"]; v != nil { // held.bpf.h
		if err := v.Set(true); err != nil {
			return fmt.Errorf("start recording held objects: %w", err)
		}
	}
	if !s.lists || s.Out.Format() == output.JSON {
		if err := s.Out.Ready(output.Ready{Time: time.Now(), Tool: s.tool.Name, Hooks: s.Objects.AttachedHooks()}); err != nil {
			return err
		}
	}
	if s.command == nil {
		return nil
	}
	return s.command.release()
}

// Enough reports whether --limit is reached.
func (s *Session) Enough() bool {
	return s.common.Limit > 0 && s.Shown >= s.common.Limit
}
