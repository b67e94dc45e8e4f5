package tool

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
)

// facts describes a tool for one command line, with further facts for [Check].
type facts struct {
	document.Tool
	tool  *Tool
	spec  *ebpf.CollectionSpec
	files map[string]binary.Files
	line  *line
}

// Facts describes the tool as run with args.
func (t *Tool) Facts(args ...string) (*document.Tool, error) {
	f, err := t.facts(args...)
	if err != nil {
		return nil, err
	}
	return &f.Tool, nil
}

func (t *Tool) facts(args ...string) (*facts, error) {
	l, err := t.parse(args)
	if err != nil {
		return nil, err
	}
	env := newEnv()
	env.PIDs = l.tasks.PID
	src, err := l.build(env)
	if err != nil {
		return nil, flags.Usage(err)
	}
	return l.facts(src)
}

func (l *line) facts(src Source) (*facts, error) {
	groups, err := l.tool.flagGroups()
	if err != nil {
		return nil, err
	}
	spec, err := l.tool.Object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	f := &facts{Tool: l.tool.document(groups), tool: l.tool, spec: spec, files: src.Base().Files, line: l}
	f.Kind, f.Hooks, f.Iterators = src.Kind(), probe.Hooks(spec), iterators(spec)
	f.Without, f.Optional, f.StandIns = l.without(src.Base(), nil), src.Base().Optional, src.Base().StandIns
	if !slices.ContainsFunc(f.Hooks, func(h probe.Hook) bool { return h.Name == commandHook }) {
		f.Without = slices.DeleteFunc(slices.Clone(f.Without), func(name string) bool { return name == commandHook })
	}
	f.Keep = l.tool.keep(src.Base())
	f.Lost, f.Counters = append(lossReasons(spec), reasonFilter), members(spec, "counters")
	f.Privileges = f.privileges()
	return f, f.addColumns(src)
}

// document returns the part of the description that does not depend on the command line.
func (t *Tool) document(groups []document.FlagGroup) document.Tool {
	d := document.Tool{
		Name: t.Name, Summary: t.Summary, Description: t.Description, Peers: t.Peers, Overhead: t.Overhead, Examples: t.Examples,
		Flags: groups, ExitCodes: ExitCodes(),
		Lines: map[string]reflect.Type{"explain": reflect.TypeFor[Explanation](), "stats": reflect.TypeFor[Stats]()},
	}
	if len(t.args) > 0 {
		d.StandsFor = t.StandsFor()
	}
	for _, a := range t.Also {
		d.Aliases = append(d.Aliases, document.Alias{Name: a.Name, StandsFor: t.As(a.Name).StandsFor()})
	}
	return d
}

func (f *facts) addColumns(src Source) error {
	d, err := src.Describe(newEnv(), f.spec)
	if err != nil {
		return err
	}
	asJSON := f.line.common
	asJSON.Output = string(output.JSON)
	if err := d.Columns.choose(&asJSON, f.line.selection.Columns, d.Text); err != nil {
		return flags.Usage(err)
	}
	f.Screen, f.Percentiles = d.Screen, d.Percentiles
	f.Text, f.JSON = d.Text, column.Keys(d.Columns.Shown)
	f.Columns, f.Keys = d.Columns.All[len(d.Keys):], d.Labels
	return nil
}

func iterators(spec *ebpf.CollectionSpec) []string {
	var out []string
	for _, prog := range spec.Programs {
		if isIterator(prog) {
			out = append(out, prog.SectionName)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func isIterator(prog *ebpf.ProgramSpec) bool {
	return prog != nil && prog.AttachType == ebpf.AttachTraceIter
}

// reasonFilter is the only loss reason that no program counts: --filter failed for a row.
const reasonFilter = "filter_failed"

// LossReason is a loss reason: its key in JSON, and what it means.
type LossReason struct{ Name, Meaning string }

// LossReasons explains the counters of struct lost (lost.bpf.h) and reasonFilter.
func LossReasons() []LossReason {
	return []LossReason{
		{"buffer_full", "The ring buffer or perf buffer was full because corescope did not read it fast enough, such as on an overloaded machine or while the reader of its output waited. A filter that selects fewer events, or --buffer-pages of the tools that have it, helps."},
		{"map_full", "The map with the state of operations that have not ended, or with the counts of keys, was full. A filter helps, or an option for its size, such as --max-allocations of memleak."},
		{"program_busy", "The kernel skipped the program because it was already running on the same CPU, such as in an interrupt during the program. Not every skipped run concerns an event that filters select, so the number is an upper limit."},
		{"condition_unread", "Memory that a condition of the command line needs could not be read, such as a page that is not resident, so it is not known whether the event matches."},
		{"unobserved", "No program ran for the event, for its start or for its end, as inferred from other observations: the end of an operation without its start, counters of the kernel that grew by more than was observed, or calls that the kernel's kprobes report as missed. What began before all programs were attached, or ends after they are detached, is not lost."},
		{reasonFilter, "The expression of --filter failed for a row, such as args[5] of a process with two arguments. The row is not shown."},
	}
}

// lossReasons lists the loss reasons of an object; of an object without programs, that of user space.
func lossReasons(spec *ebpf.CollectionSpec) []string {
	if len(spec.Programs) == 0 {
		return []string{"unobserved"}
	}
	return members(spec, "lost")
}

// members lists the counters in a map.
func members(spec *ebpf.CollectionSpec, name string) []string {
	m := spec.Maps[name]
	if m == nil {
		return nil
	}
	var out []string
	if s, ok := btf.UnderlyingType(m.Value).(*btf.Struct); ok {
		for _, m := range s.Members {
			out = append(out, m.Name)
		}
	}
	return out
}

// group is a group of flags with a heading.
type group struct {
	title   string
	options []any
}

// groups returns all flags of a command line, the tool's own first.
func (l *line) groups() ([]group, error) {
	src, err := l.usual()
	if err != nil {
		return nil, err
	}
	own := group{"Flags", []any{l.options}}
	if l.tool.Returns {
		own.options = append(own.options, &l.returns)
	}
	all := []group{own}
	if l.tool.Tasks {
		all = append(all, group{"Task filter", []any{&l.tasks}})
	}
	common := group{"Common flags", []any{&l.common}}
	if src.Kind() != output.KindHistogram {
		common.options = []any{&l.selection, &l.common}
	}
	return append(all, common), nil
}

func isCommon(options any) bool { _, ok := options.(*common); return ok }

// describeOutput sets the help of --output for sources with further formats.
func (l *line) describeOutput(set *flags.Set) {
	src, err := l.usual()
	if err != nil {
		return
	}
	all := formats(src)
	if len(all) <= 3 {
		return
	}
	help := "text, json (one object per line), " + listed(all[2:])
	if src.Kind() == output.KindHistogram {
		help += "; the last two are heat maps over time, with a column per interval (default 1s)"
	}
	set.Describe("output", help)
}

// listed joins names with commas and a final "or".
func listed(all []output.Format) string {
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = string(f)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// flagGroups lists the flags with their defaults.
func (t *Tool) flagGroups() ([]document.FlagGroup, error) {
	l, err := t.newLine()
	if err != nil {
		return nil, err
	}
	groups, err := l.groups()
	if err != nil {
		return nil, err
	}
	var out []document.FlagGroup
	for i, g := range groups {
		set := flags.New(t.Name)
		for _, options := range g.options {
			if err := set.Add(options, t.Shorts); err != nil {
				return nil, err
			}
		}
		if i == 0 { // the tool's own
			set.Fix(l.fixed)
		}
		if slices.ContainsFunc(g.options, isCommon) {
			l.describeOutput(set)
		}
		out = append(out, document.FlagGroup{Title: g.title, Flags: set.All()})
	}
	return out, nil
}

// ExitCodes lists the exit codes of all tools.
func ExitCodes() []document.ExitCode {
	return []document.ExitCode{
		{Code: ExitOK, Meaning: "Success: the run ended as requested, by a signal, or because its output was closed."},
		{Code: ExitFailure, Meaning: "Failure, such as an error while writing the output, or in the command that the run has started."},
		{Code: ExitUsage, Meaning: "Invalid command line, or a name in it does not exist: a flag, a column, a cgroup, a container."},
		{Code: ExitNotPermitted, Meaning: "Not permitted. The error names the missing capabilities."},
		{Code: ExitUnsupported, Meaning: "Not supported by this kernel. The error names what is missing."},
		{Code: ExitLost, Meaning: "Events were lost, with --strict."},
	}
}

// help writes the help of the tool.
func (l *line) help(w io.Writer) error {
	groups, err := l.tool.flagGroups()
	if err != nil {
		return err
	}
	d := l.tool.document(groups)
	return d.Help(w)
}

func (l *line) usage(w io.Writer) error {
	groups, err := l.tool.flagGroups()
	if err != nil {
		return err
	}
	d := l.tool.document(groups)
	return d.Usage(w)
}

func (t *Tool) printVersion(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s (corescope %s)\n", t.Name, t.version); err != nil {
		return fmt.Errorf("write version: %w", err)
	}
	return nil
}

// formats lists the values of --output for the source.
func formats(src Source) []output.Format {
	all := []output.Format{output.Text, output.JSON, output.CSV}
	if f, ok := src.(interface{ Formats() []output.Format }); ok {
		all = append(all, f.Formats()...)
	}
	return all
}
