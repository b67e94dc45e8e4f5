// Package funcslower traces slow calls of functions.
package funcslower

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh funcslower.bpf.c

type options struct {
	Functions   functions          `pos:"function..." help:"functions, such as vfs_*, c:malloc or /usr/bin/bash:readline"`
	Min         flags.Milliseconds `flag:"min-ms,m" arg:"MS" help:"only calls that take at least this time: milliseconds, or with a unit as 500us"`
	MinMicros   atLeast            `flag:"min-us,u" arg:"US" help:"the same in microseconds, which LAT shows then"`
	Arguments   int                `flag:"arguments,a" arg:"N" min:"1" max:"6" help:"show the first N arguments"`
	Time        bool               `flag:"time,T" help:"show the time of day"`
	Timestamp   bool               `flag:"timestamp,t" help:"show the time since the start of the tool, in seconds"`
	Folded      bool               `flag:"folded,f" help:"show each stack in one line, outermost frame first"`
	UserStack   bool               `flag:"user-stack,U" help:"show the user stack trace at the return"`
	KernelStack bool               `flag:"kernel-stack,K" help:"show the kernel stack trace at the return"`
	Regexp      bool               `flag:"regexp,r" help:"the functions are regular expressions, which are matched at the start of a name"`
	stacktrace.UserStacks
}

const defaultMin = flags.Milliseconds(time.Millisecond)

// functions are positional arguments. They are not split at commas, because the name of a C++ function
// can contain them.
type functions []string

// UnmarshalText appends a function.
func (f *functions) UnmarshalText(text []byte) error {
	*f = append(*f, string(text))
	return nil
}

// String returns the default value.
func (f *functions) String() string { return "" }

// atLeast is a threshold that can be missing.
type atLeast struct {
	flags.Microseconds
	given bool
}

// UnmarshalText parses s.
func (a *atLeast) UnmarshalText(s []byte) error {
	a.given = true
	return a.Microseconds.UnmarshalText(s)
}

// String returns the default value.
func (a atLeast) String() string { return "" }

// Check returns an error for flags that contradict each other.
func (o *options) Check() error {
	if o.MinMicros.given && o.Min != defaultMin {
		return fmt.Errorf("--min-us and --min-ms %s cannot be combined: they set the same value", o.Min)
	}
	return nil
}

// Tool is the definition of funcslower.
var Tool = tool.Define(tool.Spec{
	Name:     "funcslower",
	Category: "function",
	Summary:  "Trace slow calls of kernel and user functions, with arguments and return value",
	Description: `Shows each call of the functions that takes 1 ms or more (-m, -u), when it returns. The time is that from entry to return, with CLOCK_MONOTONIC, including time in which the task sleeps, and a part of the cost of the probes (see funclatency(8)).

A function is a name or a pattern, in which * matches any text and ? any character: vfs_read and vfs_* are kernel functions, c:malloc is a function of the C library, /usr/bin/bash:readline one of a program. The syntaxes of BCC, bpftrace and ksnoop are accepted. A pattern selects all functions that can be probed; those that cannot are reported.

` + target.Manual + `

Nested calls are distinguished by their frame: of a function that calls itself, each slow call has a row. A call that does not return has no row; it is counted as no_return in the summary, however long it took. An exception or longjmp has left it, its task has ended, or it was still running at the end. The return of a call whose entry was not observed is counted as no_begin.

` + tool.ReturnsManual + `

Returns of Go functions cannot be traced, because the kernel would modify return addresses on the stack, which Go moves. The tool refuses to trace them.`,
	Peers: []string{
		"Columns of text are those of BCC. A threshold of 0 shows all calls.",
		"PID is the process; TID is a column of JSON, and of text with --columns +tid. BCC shows no thread.",
		"Nested calls of the same function are timed separately; BCC reports a wrong time for the outer one.",
		"Kernel and user functions, and patterns, can be combined in one run.",
		"-a shows registers, as in BCC: a number smaller than 64 bits can have any upper bits. trace(8) shows arguments by type.",
		"-U and -K show stacks below the row, with addresses; with -f in one line each. BCC prints the frames one per line, or with -f one line.",
	},
	Overhead: "The BPF programs take 0.6 us at the entry and 0.4 us at the return of a call, whether it is slow or not (150,000 calls of a user function on a busy virtual machine, --stats). For user functions the traps cost more: see funclatency(8).",
	Examples: []string{
		"funcslower vfs_write                      # file writes that take 1 ms or more",
		"funcslower -m 10 -K vfs_fsync 'ext4_*'    # 10 ms or more, with kernel stacks",
		"funcslower -u 10 -p 1234 c:malloc c:free  # 10 us or more in one process",
		"funcslower -m 0 -a 2 -U c:open            # all calls, with two arguments and user stacks",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "duration": "d"},
}, options{Min: defaultMin, UserStacks: stacktrace.DefaultUserStacks()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Columns: o.columns(), Extra: o.stacks(), BufferBytes: 8 << 20,
		Row: row{env: env, arguments: o.Arguments, micros: o.MinMicros.given, folded: o.Folded},
	}
	min := time.Duration(o.Min)
	if o.MinMicros.given {
		min, e.Headers = time.Duration(o.MinMicros.Microseconds), map[string]string{"latency_ns": "LAT(us)"}
	}
	e.Plan = tool.Plan{
		RowNoun:   "slow call",
		Hints:     map[string]string{"no_stack": "calls have no kernel stack, because this kernel does not find the callers of a function at its return: stacksnoop and trace -K show them at the entry"},
		Variables: map[string]any{"targ_min_ns": uint64(min), "want_args": o.Arguments > 0},
	}
	if o.KernelStack {
		e.Plan.Keep = append(e.Plan.Keep, system.CapSyslog)
	}
	if o.UserStack {
		e.UserStacks = &o.UserStacks
		e.Plan.Keep = append(e.Plan.Keep, tool.UserStackNeeds()...)
	}
	e.Resolve = func(p *tool.Plan, _ *tool.Kernel) (err error) {
		e.Row.places, err = o.find(p, env)
		return flags.Usage(err)
	}
	return e, nil
}

func (o *options) columns() []string {
	var columns []string
	if o.Time {
		columns = append(columns, "time")
	}
	if o.Timestamp {
		columns = append(columns, "elapsed_ns")
	}
	columns = append(columns, "comm", "pid", "latency_ns", "retval", "func")
	if o.Arguments > 0 {
		columns = append(columns, "args")
	}
	return append(columns, o.stacks()...)
}

func (o *options) stacks() []string {
	var columns []string
	if o.KernelStack {
		columns = append(columns, "kernel_stack")
	}
	if o.UserStack {
		columns = append(columns, "user_stack")
	}
	return columns
}

// find sets the plan's targets.
func (o *options) find(p *tool.Plan, env *tool.Env) ([]target.Place, error) {
	if len(o.Functions) == 0 {
		return nil, target.ErrMissing
	}
	pids, err := env.Processes()
	if err != nil {
		return nil, err
	}
	finder := target.Finder{PIDs: pids, Note: p.Note}
	var all []target.Place
	for _, text := range o.Functions {
		spec, err := target.Parse(text, o.Regexp)
		if err == nil {
			err = check(&spec)
		}
		if err != nil {
			return nil, err
		}
		spec.Return = true // refuse functions whose returns cannot be observed
		places, err := finder.Find(spec)
		if err != nil {
			return nil, err
		}
		for i := range places {
			places[i].Return = false
		}
		instances, places := target.Instances(places, spec.IsPattern())
		for i := range instances {
			instances[i].First += uint64(len(all))
		}
		p.Instances, all = append(p.Instances, instances...), append(all, places...)
	}
	return all, nil
}

func check(s *target.Spec) error {
	switch {
	case s.Return:
		return errors.New("prefix r: is not supported: the time from entry to return is measured")
	case s.Kind != target.Kernel && s.Kind != target.User:
		return errors.New("only functions are supported: tracepoints and USDT probes have no duration")
	case s.Offset != 0:
		return errors.New("an offset is not supported: the time from entry to return is measured")
	}
	return nil
}

// addresses returns the addresses of a stack.
func addresses(to []uint64, b []byte) []uint64 {
	for to = to[:0]; len(b) >= 8; b = b[8:] {
		to = append(to, binary.NativeEndian.Uint64(b))
	}
	return to
}
