// Package tool is what a tool is made with: it states what is true of the tool
// (its object, hooks, columns, flags, text) and the package does all the rest, from
// the command line to the last line of output.
package tool

import (
	"context"
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// Spec says what is true of a tool whatever its options are.
type Spec struct {
	Name string
	// Also are other names that it goes by, as peers have them.
	Also []Alias
	// Category is the heading it is listed below: "process", "file", "block", "network", "scheduler".
	Category string
	// Summary is one line, without a full stop.
	Summary string
	// Description is the manual's text. Paragraphs are apart by an empty line.
	Description string
	// Peers says where the tool differs from those of the same name, flags first.
	Peers []string
	// Overhead says what it costs, with figures and how they were measured.
	Overhead string
	// Examples are command lines with what they do, behind "# ".
	Examples []string
	// Capabilities that every run needs beside CAP_BPF and CAP_PERFMON.
	Capabilities []system.Capability

	// Object loads the BPF object.
	Object func() (*ebpf.CollectionSpec, error)
	// Tasks tells that its events belong to tasks, so that they can be filtered by
	// --pid, --tid, --uid, --comm, --cgroup and --container.
	Tasks bool
	// Shorts are the short names of the flags that all tools have, by long name.
	Shorts map[string]string
}

// Tool is a tool that can be run. See [Define].
type Tool struct {
	Spec
	// self and args are set where it goes by an alias: the tool by its own name, and what
	// the alias stands for.
	self *Tool
	args []string
	// build makes a run's options, for the flags, and the source that follows from them.
	build func() (options any, source func(*Env) (Source, error))
}

// Plan is what one run of a tool asks of the kernel beyond its object. It is the
// first part of every source.
type Plan struct {
	// Variables of the programs that do not follow from a flag.
	Variables map[string]any
	// MapEntries sets the sizes of maps.
	MapEntries map[string]uint32
	// Without lists hooks that this run can do without, Optional those that this
	// kernel may lack: then the tool sees less, and its manual says what.
	Without, Optional []string
	// StandIns are hooks that are taken where another one cannot be had, and what is
	// different then, which is told.
	StandIns []StandIn
	// ForFilter lists hooks that this run needs only if it filters by task.
	ForFilter []string
	// Keep lists capabilities that are of use when all is attached, to look at other
	// processes as events come; the run gives up all others then. The names of cgroups
	// and containers need nothing here.
	Keep []system.Capability
	// Files says in which files the programs of user space are attached, by the names
	// that their sections have for these. --pid leaves those that the processes map.
	Files map[string]binary.Files
	// Output, if set, is the --output that one of the tool's own flags stands for.
	Output string
	// Duration, if set, is the --duration that an argument of the tool's own stands for.
	Duration flags.Duration
	// Print, if set, is all that this run does: it needs no kernel.
	Print func(io.Writer) error
	// Measure has the kernel measure all BPF programs while this run lasts, as --stats
	// does. It takes CAP_SYS_ADMIN.
	Measure bool
	// Exec, if set, is a command that is started for this run: only its process is of
	// interest, it begins when all is attached, and the run ends with it.
	Exec string
	// Hook are uses of --hook that follow from the tool's own flags.
	Hook []string
	// Resolve, if set, completes the plan on this machine, before the object is loaded.
	Resolve func(*Plan, *Kernel) error
	// Instances are the targets of hooks whose programs' sections name none.
	Instances []Instance
	// Sampling says when programs of perf events run.
	Sampling Sampling
}

// Instance is a hook with targets of the user's choice, Target one of these. StandIn is a hook
// in place of another. Kernel has the running kernel's types.
type (
	Instance = probe.Instance
	Target   = probe.Target
	StandIn  = probe.StandIn
	Kernel   = probe.Kernel
)

// Sampling is when programs of perf events run.
type Sampling = probe.Sampling

func (p *Plan) plan() *Plan { return p }

// Kinds of what sources show.
const (
	kindEvent     = "event"
	kindHistogram = "histogram"
	kindRow       = "row"
)

// Source is where output comes from: [Events], [List], [Hists] or [Table].
type Source interface {
	plan() *Plan
	// kind is the "type" in JSON of what the source shows.
	kind() string
	// describe binds columns and checks types, without a kernel.
	describe(*Env, *ebpf.CollectionSpec) (*description, error)
	// run attaches, then reads and writes until the context is done or there is enough.
	run(context.Context, *session) error
}

// ErrUnsupported is returned for what this kernel has no way to.
var ErrUnsupported = probe.ErrUnsupported

// Define makes a tool of its spec, its options' defaults and a function that makes
// the source once the options are read. The options' fields are flags by their
// tags; see package flags. build may refuse options with an error, which ends the
// run as a usage error.
func Define[O any](s Spec, defaults O, build func(*O, *Env) (Source, error)) *Tool {
	return &Tool{Spec: s, build: func() (any, func(*Env) (Source, error)) {
		o := defaults
		return &o, func(env *Env) (Source, error) { return build(&o, env) }
	}}
}

// source returns a source with default options, to look at.
func (t *Tool) source() (Source, error) {
	_, build := t.build()
	src, err := build(newEnv())
	if err != nil {
		return nil, fmt.Errorf("build %s with default options: %w", t.Name, err)
	}
	return src, nil
}
