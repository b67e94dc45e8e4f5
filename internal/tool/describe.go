package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// Facts are what can be told of a tool without a kernel, for one command line.
type Facts struct {
	*Tool
	// Kind is the "type" in JSON of what it shows: "event", "row" or "histogram".
	Kind string
	// Screen tells that text is a screen on a terminal.
	Screen bool
	Flags  []FlagGroup
	// Columns are all that there are, for histograms those of their statistics. They
	// are bound to a row in memory.
	Columns []column.Column
	// Keys are the columns that can tell histograms apart.
	Keys []column.Column
	// Text has the keys of the columns that text shows, JSON those of JSON and CSV.
	Text, JSON []string
	// Hooks are in the order of their names. Without are those that this command line
	// does without, Optional those that a kernel may lack.
	Hooks             []probe.Hook
	Without, Optional []string
	StandIns          []StandIn
	// Keep lists capabilities that this command line keeps when all is attached.
	Keep system.Capabilities
	// Iterators are the sections of programs that list what is there already.
	Iterators []string
	// Lost are the reasons why something can be lost, Counters what else is counted.
	Lost, Counters []string

	spec  *ebpf.CollectionSpec
	files map[string]binary.Files
	line  *line
}

// FlagGroup is flags below one heading.
type FlagGroup struct {
	Title string
	Flags []flags.Flag
}

// Facts describes the tool as it is run with args.
func (t *Tool) Facts(args ...string) (*Facts, error) {
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

func (l *line) facts(src Source) (*Facts, error) {
	groups, err := l.tool.flagGroups()
	if err != nil {
		return nil, err
	}
	spec, err := l.tool.Object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	f := &Facts{
		Tool: l.tool, Kind: src.kind(), Flags: groups, Hooks: probe.Hooks(spec), Iterators: iterators(spec),
		Without: l.without(src.plan()), Optional: src.plan().Optional, StandIns: src.plan().StandIns, Keep: l.tool.keep(src.plan()), files: src.plan().Files,
		Lost: append(members(spec, "lost"), reasonFilter), Counters: members(spec, "counters"), spec: spec, line: l,
	}
	return f, f.addColumns(src)
}

func (f *Facts) addColumns(src Source) error {
	d, err := src.describe(newEnv(), f.spec)
	if err != nil {
		return err
	}
	asJSON := f.line.common
	asJSON.Output = string(output.JSON)
	if err := d.columns.choose(&asJSON, f.line.selection.Columns, d.text); err != nil {
		return flags.Usage(err)
	}
	f.Screen = d.screen
	f.Text, f.JSON = d.text, column.Keys(d.columns.shown)
	f.Columns, f.Keys = d.columns.all[len(d.keys):], d.labels
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

// reasonFilter is the one reason for a loss that no program counts: --filter could not be
// computed for a row.
const reasonFilter = "filter_failed"

// members lists the names of what a map of counters counts.
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

// group is the options whose flags are below one heading.
type group struct {
	title   string
	options []any
}

// groups are all options of a command line, the tool's own first.
func (l *line) groups() ([]group, error) {
	src, err := l.tool.source()
	if err != nil {
		return nil, err
	}
	all := []group{{"Flags", []any{l.options}}}
	if l.tool.Tasks {
		all = append(all, group{"Task filter", []any{&l.tasks}})
	}
	common := group{"Common flags", []any{&l.common}}
	if src.kind() != kindHistogram {
		common.options = []any{&l.selection, &l.common}
	}
	return append(all, common), nil
}

func isCommon(options any) bool { _, ok := options.(*common); return ok }

// describeOutput names the forms of output that only some tools have.
func (l *line) describeOutput(set *flags.Set) {
	src, err := l.tool.source()
	if err != nil {
		return
	}
	if all := formats(src); len(all) > 3 {
		set.Describe("output", "text, json (an object a line), "+listed(all[2:]))
	}
}

// listed puts "or" before the last one.
func listed(all []output.Format) string {
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = string(f)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// flagGroups lists the flags as they are before any is given.
func (t *Tool) flagGroups() ([]FlagGroup, error) {
	l, err := t.newLine()
	if err != nil {
		return nil, err
	}
	groups, err := l.groups()
	if err != nil {
		return nil, err
	}
	var out []FlagGroup
	for _, g := range groups {
		set := flags.New(t.Name)
		for _, options := range g.options {
			if err := set.Add(options, t.Shorts); err != nil {
				return nil, err
			}
		}
		if slices.ContainsFunc(g.options, isCommon) {
			l.describeOutput(set)
		}
		out = append(out, FlagGroup{g.title, set.All()})
	}
	return out, nil
}

// ExitCode is what a number that the program exits with means.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes lists the exit codes of all tools.
func ExitCodes() []ExitCode {
	return []ExitCode{
		{ExitOK, "It ended as it was asked to, or by a signal, or nobody read its output any more."},
		{ExitFailure, "Something failed, such as writing the output."},
		{ExitUsage, "The command line was wrong, or names what is not there: a flag, a column, a cgroup, a container."},
		{ExitNotPermitted, "Not permitted. The error says which capabilities are needed."},
		{ExitUnsupported, "This kernel cannot. The error says what is missing."},
		{ExitLost, "Something was lost, under --strict."},
	}
}
