package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
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

// errLost ends a run under --strict.
var errLost = errors.New("something was lost (--strict)")

// Run runs the tool until it has what it was asked for, or ctx is done, and returns
// its exit code. args are those behind the tool's name; rows go to out, all else to
// errOut (see package output).
func Run(ctx context.Context, t *Tool, args []string, out, errOut io.Writer) int {
	return t.runLine(ctx, args, out, errOut, false)
}

// Main is Run in a process that is there for nothing else: when all is attached, it
// gives up for good whatever capabilities the run does not need any more.
func Main(ctx context.Context, t *Tool, args []string, out, errOut io.Writer) int {
	return t.runLine(ctx, args, out, errOut, true)
}

func (t *Tool) runLine(ctx context.Context, args []string, out, errOut io.Writer, own bool) int {
	errOut = &shared{w: errOut}
	l, err := t.parse(args)
	switch {
	case errors.Is(err, flags.ErrHelp):
		err = errors.Join(err, l.help(out))
	case err != nil:
		err = fmt.Errorf("%w (see %s --help)", err, t.Name)
	default:
		err = l.run(ctx, out, errOut, own)
	}
	if err != nil && !isEnd(err) {
		fmt.Fprintf(errOut, "%s: %v%s\n", t.Name, err, l.remedy(err))
	}
	return exitCode(err)
}

// isEnd tells the errors that are a way to end: help was asked for, or nobody reads
// any more.
func isEnd(err error) bool {
	return errors.Is(err, flags.ErrHelp) || errors.Is(err, unix.EPIPE)
}

func exitCode(err error) int {
	switch {
	case err == nil, isEnd(err):
		return ExitOK
	case errors.Is(err, flags.ErrUsage), errors.Is(err, column.ErrUnknown), errors.Is(err, probe.ErrTooLong),
		errors.Is(err, probe.ErrNoVariant), errors.Is(err, probe.ErrNoPlace):
		return ExitUsage
	case errors.Is(err, probe.ErrNotPermitted):
		return ExitNotPermitted
	case errors.Is(err, probe.ErrUnsupported):
		return ExitUnsupported
	case errors.Is(err, errLost):
		return ExitLost
	}
	return ExitFailure
}

// startGC lets a start make 16 MB of garbage before any is collected, which it does not come
// to as a rule: a fifth of its time went into that.
const startGC = 400

func (l *line) run(ctx context.Context, out, errOut io.Writer, own bool) error {
	usualGC := debug.SetGCPercent(startGC)
	defer debug.SetGCPercent(usualGC)
	src, env, err := l.source()
	if err != nil {
		return err
	}
	if print := src.plan().Print; print != nil {
		return print(out)
	}
	cmd, err := l.start(src.plan())
	if err != nil {
		return err
	}
	if cmd != nil {
		defer cmd.close()
	}
	s, err := l.tool.open(l, src, env, func(err error) { fmt.Fprintf(errOut, "%s: %v\n", l.tool.Name, err) })
	if err != nil {
		return err
	}
	defer s.objects.Close()
	if l.common.Explain {
		return s.explain(out)
	}
	ctx, stop := untilClosed(ctx, out)
	defer stop()
	if cmd != nil {
		ctx, stop = cmd.until(ctx)
		defer stop()
	}
	s.command, s.usualGC = cmd, usualGC
	s.terminal, s.errOut, s.own = out, &notes{out: errOut}, own
	format := output.Format(l.common.Output)
	s.out = output.New(output.Options{
		Format: format, Name: l.tool.Name, NoHeader: l.common.NoHeader || s.blocks && format == output.Text,
		Columns: s.columns, Out: out, Err: s.errOut,
	})
	return s.follow(ctx, src)
}

// start starts the plan's command, if there is one, and asks for its process alone.
func (l *line) start(p *Plan) (*command, error) {
	if p.Exec == "" {
		return nil, nil
	}
	if !reflect.ValueOf(l.tasks).IsZero() {
		return nil, fmt.Errorf("%w: a command of this run and other tasks do not go together", flags.ErrUsage)
	}
	cmd, err := startCommand(p.Exec)
	if err != nil {
		return nil, err
	}
	l.tasks.PID = []uint32{cmd.pid()}
	return cmd, nil
}

// follow lets the source attach and run, and tells the end.
func (s *session) follow(ctx context.Context, src Source) error {
	if s.common.Stats || src.plan().Measure {
		if err := s.stats.begin(); err != nil {
			return err
		}
		defer s.stats.close()
	}
	runErr := src.run(ctx, s)
	if err := errors.Join(runErr, s.objects.Detach()); err != nil {
		return err
	}
	lost, err := s.summary()
	if err == nil && lost > 0 && s.common.Strict {
		return errLost
	}
	return err
}

// line is a command line that was read.
type line struct {
	tool      *Tool
	common    common
	tasks     tasks
	selection selection
	set       *flags.Set
	options   any
	build     func(*Env) (Source, error)
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
	l.describeOutput(l.set)
	if err := l.set.Parse(args); err != nil {
		return l, err
	}
	return l, l.common.check()
}

// newLine is a line before it is read.
func (t *Tool) newLine() (*line, error) {
	l := &line{tool: t, set: flags.New(t.Name), common: common{Output: string(output.Text)}}
	l.options, l.build = t.build()
	return l, t.setDefaults(l.options)
}

// source makes the source that the line asks for.
func (l *line) source() (Source, *Env, error) {
	env := newEnv()
	kernel, err := probe.NewKernel(l.common.BTF)
	if err != nil {
		return nil, nil, err
	}
	env.kernel, env.PIDs = kernel, l.tasks.PID
	src, err := l.build(env)
	if errors.Is(err, probe.ErrUnsupported) {
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, flags.Usage(err)
	}
	if output := src.plan().Output; output != "" {
		l.common.Output = output
	}
	if d := src.plan().Duration; d > 0 && l.common.Duration == 0 {
		l.common.Duration = d
	}
	return src, env, l.common.checkOutput(src)
}

// open loads the object, with nothing attached.
func (t *Tool) open(l *line, src Source, env *Env, notify func(error)) (*session, error) {
	spec, err := t.Object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	d, err := src.describe(env, spec)
	if err != nil {
		return nil, err
	}
	if err := d.columns.choose(&l.common, l.selection.Columns, d.text); err != nil {
		return nil, flags.Usage(err)
	}
	objects, err := l.load(env, spec, src.plan(), d.columns.needs(), notify)
	if err != nil {
		return nil, err
	}
	keep := t.keep(src.plan())
	if d.columns.usesCgroups() {
		keep |= system.Set(system.CapDACReadSearch)
		if err := env.rememberCgroups(); err != nil {
			return nil, errors.Join(err, objects.Close())
		}
	}
	s := &session{
		tool: t, common: l.common, env: env, objects: objects, keep: keep, standIns: src.plan().StandIns, pid: l.tasks.process(),
		losses: losses{counts: objects.Counts("lost")},
	}
	if src.kind() != kindHistogram {
		s.columns, s.blocks = d.columns.shown, d.blocks
	}
	return s, nil
}

func (l *line) load(env *Env, spec *ebpf.CollectionSpec, plan *Plan, needs map[string]any, notify func(error)) (*probe.Objects, error) {
	kernel := env.kernel
	if plan.Resolve != nil {
		if err := plan.Resolve(plan, kernel); err != nil {
			return nil, err
		}
	}
	kernel.Prepare(spec)
	vars := l.set.Variables()
	maps.Copy(vars, plan.Variables)
	maps.Copy(vars, needs)
	if l.tool.Tasks {
		filter, err := l.tasks.variables(env, kernel)
		if err != nil {
			return nil, err
		}
		maps.Copy(vars, filter)
	}
	if err := l.checkLengths(spec, vars); err != nil {
		return nil, err
	}
	files, err := l.files(plan)
	if err != nil {
		return nil, err
	}
	return probe.Load(spec, probe.Options{
		Variables: vars, MapEntries: plan.MapEntries, PerfBuffer: l.common.Perf,
		Without: l.without(plan), Optional: plan.Optional, StandIns: plan.StandIns, Force: slices.Concat(l.common.Hook, plan.Hook), Kernel: kernel,
		Files: files, Instances: plan.Instances, Sampling: plan.Sampling, Notify: notify,
	})
}

// files are those of the plan, of the processes that the command line names.
func (l *line) files(plan *Plan) (map[string]binary.Files, error) {
	files := maps.Clone(plan.Files)
	for name, f := range files {
		for _, path := range slices.Concat(f.Paths, f.Extra) {
			if _, err := os.Stat(path); err != nil {
				return nil, flags.Usage(err)
			}
		}
		f.PIDs = l.tasks.PID
		files[name] = f
	}
	return files, nil
}

// without lists the hooks that this command line does without.
func (l *line) without(plan *Plan) []string {
	if reflect.ValueOf(l.tasks).IsZero() {
		return slices.Concat(plan.Without, plan.ForFilter)
	}
	return plan.Without
}

// checkLengths refuses texts that the programs have no room for.
func (l *line) checkLengths(spec *ebpf.CollectionSpec, vars map[string]any) error {
	for name, val := range vars {
		text, ok := val.(string)
		if v := spec.Variables[name]; ok && v != nil && len(text) > int(v.Size()) {
			return fmt.Errorf("%w: --%s: %d bytes are too many, there is room for %d",
				flags.ErrUsage, l.set.FlagOf(name), len(text), v.Size())
		}
	}
	return nil
}

// sayTried tells which ways to the hooks were tried, and how they fared.
func (s *session) sayTried() {
	for hook, attempts := range s.objects.Tried {
		for _, a := range attempts {
			fmt.Fprintf(s.errOut, "%s: hook %s: %s: %s\n", s.tool.Name, hook, a.Variant, probe.Reason(a.Err))
			for _, t := range a.Targets {
				fmt.Fprintf(s.errOut, "%s: hook %s: %s: attached to %s\n", s.tool.Name, hook, a.Variant, t)
			}
		}
	}
}

// refusalsSaid is how many targets that could not be had are named without --verbose.
const refusalsSaid = 5

// sayRefused tells which targets could not be had.
func (s *session) sayRefused() {
	refused := s.objects.Refused
	said := len(refused)
	if !s.common.Verbose {
		said = min(said, refusalsSaid)
	}
	for _, r := range refused[:said] {
		fmt.Fprintf(s.errOut, "%s: not attached to %s: %s\n", s.tool.Name, r.Target, probe.Reason(r.Err))
	}
	if rest := len(refused) - said; rest > 0 {
		fmt.Fprintf(s.errOut, "%s: not attached to %d more\n", s.tool.Name, rest)
	}
}

// attach attaches all hooks; the returned context is done when --duration is over.
func (s *session) attach(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := s.objects.Attach(); err != nil {
		return nil, nil, err
	}
	if d := time.Duration(s.common.Duration); d > 0 {
		ctx, cancel := context.WithTimeout(ctx, d)
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel, nil
}

// ready tells that everything is attached, and all is open that the run needs rights for.
func (s *session) ready() error {
	if err := s.confine(); err != nil {
		return err
	}
	debug.SetGCPercent(s.usualGC)
	if s.common.Verbose {
		s.sayTried()
	}
	s.sayRefused()
	if begun := s.objects.Variables["held_begun"]; begun != nil { // held.bpf.h
		if err := begun.Set(true); err != nil {
			return fmt.Errorf("begin to hold: %w", err)
		}
	}
	if err := s.out.Ready(output.Ready{Time: time.Now(), Tool: s.tool.Name, Hooks: s.objects.Taken()}); err != nil {
		return err
	}
	if s.command == nil {
		return nil
	}
	return s.command.release()
}

// enough tells that --limit is reached.
func (s *session) enough() bool {
	return s.common.Limit > 0 && s.shown >= s.common.Limit
}
