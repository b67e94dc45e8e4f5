// Package uflow traces method calls with their nesting.
package uflow

import (
	"errors"
	"strings"

	"github.com/corescope/corescope/internal/language"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh uflow.bpf.c

type options struct {
	language.Process
	Method string `flag:"method,M" arg:"PREFIX" bpf:"targ_method" help:"only methods whose names start with this"`
	Class  string `flag:"class,C" arg:"PREFIX" bpf:"targ_class" help:"only methods of classes (Perl: packages, Python: files) whose names start with this"`
}

type event struct {
	value.Task
	Delta    uint64 `btf:"delta_ns"`
	CPU      uint32 `json:"cpu" col:"CPU,width=3" help:"CPU on which the call began or returned"`
	Language uint32
	Depth    uint32 `json:"depth" col:"DEPTH,width=5,right" help:"number of shown calls in the same thread that the call is nested in, 0 if the entry of a return was not observed"`
	IsReturn bool   `json:"is_return" col:"RETURN,width=6" help:"whether the call returned; otherwise it began"`
	Unseen   bool   `json:"unseen" col:"UNSEEN,width=6" help:"whether the entry of this return was not observed"`
	_        [2]byte
	RawClass [96]byte `btf:"class"`
	Raw      [80]byte `btf:"method"`
}

type row struct {
	event
	source.Elapsed
	Name    string        `json:"language" col:"LANGUAGE,width=8" help:"language of the program"`
	Flow    value.Name    `json:"flow" col:"METHOD,width=50" help:"-> for a call that began or <- for one that returned, indented by two spaces per level, then class and method, joined by a dot"`
	Class   value.Name    `json:"class" col:"CLASS,width=30" help:"Java, PHP, Ruby: the class; Perl: the package; Python: the file; at most its first 96 bytes; absent for Tcl and outside classes"`
	Method  value.Name    `json:"method" col:"NAME,width=20" help:"method, function, subroutine or procedure; at most its first 80 bytes; absent if the name was not in memory (paged out)"`
	Latency value.Integer `json:"delta_ns" col:"NS,width=10,right" help:"time from entry to return (CLOCK_MONOTONIC); absent for a call that began, and if its entry was not observed"`
}

// Decode indents the name.
func (r *row) Decode([]byte) error {
	r.Name = language.Name(r.Language)
	r.Class, r.Method = value.NameOf(r.RawClass[:]), value.NameOf(r.Raw[:])
	arrow := "-> "
	if r.IsReturn {
		arrow = "<- "
	}
	const most = 100 // levels of indentation
	name := strings.TrimPrefix(string(r.Class)+"."+string(r.Method), ".")
	r.Flow = value.Name(strings.Repeat("  ", int(min(r.Depth, most))) + arrow + name)
	r.Latency = value.Integer{N: int64(r.Delta), Given: r.Delta > 0}
	return nil
}

func languages() []string { return []string{"java", "perl", "php", "python", "ruby", "tcl"} }

// Tool is the definition of uflow.
var Tool = tool.Define(tool.Spec{
	Name:     "uflow",
	Also:     language.Aliases("flow", languages()...),
	Category: "runtime",
	Summary:  "Trace method and function calls and returns, indented by depth (call flow), in Java, Perl, PHP, Python, Ruby and Tcl",
	Description: `Shows each call of a method when it begins and when it returns, indented by the number of calls that it is nested in. Rows of several threads are mixed: --tid selects one. With -M or -C, calls of other methods are not shown, and do not count for the depth.

The hooks are USDT probes of the runtimes: hotspot:method__entry and method__return (Java), perl:sub__entry and sub__return, php:function__entry and function__return, python:function__entry and function__return, ruby:method__entry, method__return, cmethod__entry and cmethod__return (methods that are written in C), tcl:proc__entry and proc__return.

` + language.Builds + `

` + language.Crash + `

Every call costs two traps into the kernel, so programs that make many calls become several times slower.

Probes do not identify calls, so a return belongs to the innermost call of the same method in its thread. Calls that were left without a return, such as by an exception, are counted as no_return in the summary, with those that were running at the end; returns of calls whose entry was not observed as unseen_calls. The probe at the entry of functions does not fire in Python 3.11, so only returns are shown there, without depth. Ruby fires the probes of methods that are written in Ruby only while a TracePoint of :call and :return is enabled in the program; those of C methods always.`,
	Peers: []string{
		"Without a PID all processes are traced. With a PID the language is detected; -l is only needed for a process that runs several.",
		"The header TIME is seconds since the start; BCC writes TIME(us) above the same value.",
		"The depth is corrected when a method returns; in BCC, a call that was left by an exception indents all later rows.",
		"A subroutine of Perl has its package; BCC shows the file.",
	},
	Examples: []string{
		"uflow 1234                    # all calls of a process",
		"uflow -C java/util/ -M get 1234 # only get... of classes in java.util",
		"uflow -l ruby --columns +delta_ns # of all Ruby programs, with times",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if len(o.Class) > 95 || len(o.Method) > 79 {
		return nil, errors.New("--class can have at most 95 bytes and --method 79")
	}
	hooks := language.Hooks{}
	for _, name := range languages() {
		hooks[name] = []string{name + "_entry", name + "_return"}
	}
	src := &source.Events[row]{
		Plan:        tool.Plan{RowNoun: "call"},
		Columns:     []string{"cpu", "pid", "tid", "elapsed_ns", "flow"},
		Headers:     map[string]string{"elapsed_ns": "TIME(s)"},
		BufferBytes: 8 << 20,
	}
	return src, o.Plan(&src.Plan, loadBpf, hooks, env.PIDs)
}
