// Package tool turns the definition of a tool (its BPF object, hooks, columns, flags and
// documentation) into a command: it parses the command line, loads and attaches the programs,
// filters rows, and reports lost events.
package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// Spec is the part of a tool's definition that does not depend on its options.
type Spec struct {
	Name string
	// Also lists other names of the tool, as used by peers.
	Also []Alias
	// Category is the heading in lists of tools: "process", "file", "block", "network", "scheduler".
	Category string
	// Summary is one line, without a full stop.
	Summary string
	// Description is the text of the manual page. An empty line separates paragraphs.
	Description string
	// Peers lists the differences from peers of the same name, flags first.
	Peers []string
	// Overhead states the cost, with figures and how they were measured.
	Overhead string
	// Examples are command lines, each followed by "# " and its purpose.
	Examples []string
	// Capabilities that every run needs besides CAP_BPF and CAP_PERFMON.
	Capabilities []system.Capability

	// Object loads the BPF object: loadBpf of the generated code.
	Object Loader
	// Tasks is set if events belong to tasks. The tool then has the task filter: --pid, --tid, --uid, --comm, --cgroup and --container.
	Tasks bool
	// NoPrograms is set if the tool has no BPF object: user space reads what the kernel maintains
	// (source.Table with Poll). A run creates nothing in the kernel, and needs no BTF and no
	// capability except Capabilities.
	NoPrograms bool
	// Access is set for such a tool that reads or writes files that not everybody can access: sentences
	// on the capabilities for them.
	Access string
	// Returns reports that programs are attached to the returns of user functions (sections uretprobe).
	Returns bool
	// Shorts are short names for flags that all tools have, keyed by long name.
	Shorts map[string]string
}

// Tool is a tool that can be run. See [Define].
type Tool struct {
	Spec
	// self and args are set for an alias: the tool under its own name, and the arguments that
	// the alias stands for.
	self    *Tool
	args    []string
	version string // of the program, for --version
	// build returns the options of a run, and a function that creates the source from them.
	build func() (options any, source func(*Env) (Source, error))
}

// Plan defines what one run of a tool loads and attaches. Every source embeds it.
type Plan struct {
	// Variables sets variables of the programs, except those that flags set.
	Variables map[string]any
	// MapEntries sets the sizes of maps.
	MapEntries map[string]uint32
	// Without lists hooks that this run does not need. Optional lists hooks that the kernel may
	// not support; the manual page states what the tool misses without them.
	Without, Optional []string
	// StandIns are hooks that replace another one if it is not supported. The difference is
	// reported to the user.
	StandIns []StandIn
	// Features are parts of the object that a run has only if their variable is true, keyed by it. It
	// is set in Variables or by columns (need=want_x).
	Features map[string]Feature
	// Cut lists functions that the run does not need: see [probe.Cut].
	Cut []string
	// ForFilter lists hooks that are only needed if the task filter is used.
	ForFilter []string
	// Keep lists capabilities that are needed after all hooks are attached, such as to read files
	// of other processes; the run drops all others. Names of cgroups and containers need none.
	Keep []system.Capability
	// Files lists the files that uprobe and USDT programs are attached to, keyed by the name that
	// their sections use. With --pid, only files that these processes map are used.
	Files map[string]binary.Files
	// RowNoun is what a row is about, for the message of a run without rows: "event" by default.
	RowNoun string
	// Hints explain counters, by name: they are written at the end of a run in which the counter is
	// not 0.
	Hints map[string]string
	// Print, if set, is called instead of the run: no programs are loaded.
	Print func(io.Writer) error
	// Measure enables the kernel's run time statistics of BPF programs for the duration of the
	// run, as --stats does. It requires CAP_SYS_ADMIN.
	Measure bool
	// Exec, if set, is a command that is started for this run. It begins when all hooks are
	// attached, and the run ends with it. The run observes its process and all descendants; the
	// object has to include command.bpf.h for that.
	Exec string
	// PerfBuffer is set if events go through perf buffers even if the kernel has the ring buffer: they
	// contain what only a helper for perf buffers can read.
	PerfBuffer bool
	// Hook lists additional values of --hook, from the tool's own flags.
	Hook []string
	// Prefetch, if set, reads what Resolve needs, while the object is being decoded.
	Prefetch func()
	// Resolve, if set, completes the plan on this machine, before the object is loaded.
	Resolve func(*Plan, *Kernel) error
	// Instances are the targets of hooks whose sections name no target.
	Instances []Instance
	// Sampling sets when programs of perf events run.
	Sampling Sampling
	// Draws is set if the output of this run is counts of independent events, and programs can count 1 of
	// N of them with the weight N (draw.bpf.h). Only streams do that, when they are told to.
	Draws bool
	// Begin lists iterator programs that run once when all hooks are attached: they note what
	// exists then.
	Begin []Iterator
	// Finish, if set, is called after the summary of the run, with the number of lost events.
	Finish func(lost uint64) error
	// Settle lists iterator programs that run once at the end, while all hooks are still
	// attached: they count operations whose start was observed but not their end.
	Settle []Iterator

	notes []error
}

// Feature is a part of an object. Without it, the Hooks are not attached, and the bodies of the
// Functions are removed, with the maps that only they use. With it, Complete completes the plan, if it
// is set: it enlarges maps, for example.
type Feature struct {
	Hooks, Functions []string
	Complete         func(*Plan) error
}

// has reports whether a run with these variables has a feature.
func (p *Plan) has(feature string, vars map[string]any) bool {
	return vars[feature] == true || p.Variables[feature] == true
}

// complete completes the plan for the features that a run with these variables has.
func (p *Plan) complete(vars map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(p.Features)) {
		if f := p.Features[name]; f.Complete != nil && p.has(name, vars) {
			if err := f.Complete(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// without lists the hooks that a run with these variables does not need, nil for the default.
func (p *Plan) without(vars map[string]any) []string {
	without := slices.Clone(p.Without)
	for _, name := range slices.Sorted(maps.Keys(p.Features)) {
		if !p.has(name, vars) {
			without = append(without, p.Features[name].Hooks...)
		}
	}
	return without
}

// reduce removes the functions of Cut, and the features that a run with these variables does not have.
func (p *Plan) reduce(spec *ebpf.CollectionSpec, vars map[string]any) {
	functions := slices.Clone(p.Cut)
	for name, feature := range p.Features {
		if !p.has(name, vars) {
			functions = append(functions, feature.Functions...)
		}
	}
	probe.Cut(spec, functions...)
}

// Note adds a notice about what the run observes, such as an attach point that Resolve selected.
func (p *Plan) Note(text string) { p.notes = append(p.notes, errors.New(text)) }

// NoteInterface adds a note if this network namespace has no network interface of this name, which can be a
// mistake. Another namespace can have one.
func (p *Plan) NoteInterface(name string) {
	if _, err := net.InterfaceByName(name); name != "" && err != nil {
		p.Note(fmt.Sprintf("no network interface of this network namespace is named %q: only those of others are observed", name))
	}
}

// Instance is a hook with targets that the user selected, Target one of them. StandIn is a hook
// that replaces another one. Kernel describes the running kernel. Iterator is an iterator program.
type (
	Iterator = probe.Iterator
	Instance = probe.Instance
	Target   = probe.Target
	StandIn  = probe.StandIn
	Kernel   = probe.Kernel
)

// Sampling defines when programs of perf events run.
type Sampling = probe.Sampling

// Base returns the plan: see [Source].
func (p *Plan) Base() *Plan { return p }

// Source produces the output of a run. Package source has the implementations.
type Source interface {
	// Base returns the plan of the run.
	Base() *Plan
	// Kind returns the "type" of its rows in JSON.
	Kind() string
	// Describe binds columns and checks types. It needs no kernel.
	Describe(*Env, *ebpf.CollectionSpec) (*Description, error)
	// Run attaches all hooks, then reads and writes until the context is done or a limit is reached.
	Run(context.Context, *Session) error
}

// ErrUnsupported is returned for what this kernel does not support.
var ErrUnsupported = probe.ErrUnsupported

// Define returns a tool with this spec, the defaults of its options, and a function that creates
// the source from parsed options. Struct tags of the options define flags; see package flags. An
// error of build is a usage error.
func Define[O any](s Spec, defaults O, build func(*O, *Env) (Source, error)) *Tool {
	if s.NoPrograms {
		s.Object = func(...Variants) (*ebpf.CollectionSpec, error) { return &ebpf.CollectionSpec{}, nil }
	}
	return &Tool{Spec: s, build: func() (any, func(*Env) (Source, error)) {
		o := defaults
		return &o, func(env *Env) (Source, error) { return build(&o, env) }
	}}
}

// Source returns a source with default options, for documentation and checks.
func (t *Tool) Source() (Source, error) {
	_, build := t.build()
	src, err := build(newEnv())
	if err != nil {
		return nil, fmt.Errorf("build %s with default options: %w", t.Name, err)
	}
	return src, nil
}
