// Package ucalls counts method calls in high-level languages.
package ucalls

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/language"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh ucalls.bpf.c

type options struct {
	language.Process
	Every        flags.Duration `flag:"interval,i" pos:"interval" arg:"TIME" zero:"none" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default, and for 0"`
	Count        uint64         `pos:"count" min:"1" help:"number of reports; unlimited by default"`
	Top          uint64         `flag:"top,T" arg:"N" min:"1" help:"show only the first N rows of each report"`
	Sort         string         `flag:"sort,s" arg:"COLUMN" help:"sort by this column, greatest first (+COLUMN: least first); default: count, with --latency total time"`
	Latency      bool           `flag:"latency,L" bpf:"want_latency" help:"measure the time of calls, and count them when they return"`
	Syscalls     bool           `flag:"syscalls,S" help:"count system calls of the process too; of all its threads"`
	Milliseconds bool           `flag:"milliseconds,m" help:"show the time in milliseconds instead of microseconds"`
}

// key mirrors struct table_key.
type key struct {
	CgroupID uint64
	Class    [96]byte
	Method   [80]byte
	Comm     value.Comm
	PID      uint32
	Language uint32
	NR, ABI  uint32
}

// counts mirrors struct table_value.
type counts struct{ Count, TotalNs uint64 }

type row struct {
	CgroupID  uint64
	PID       uint32       `json:"pid" col:"PID,width=7" help:"process, in the initial PID namespace"`
	Comm      value.Name   `json:"comm" col:"COMM,width=16" help:"name of the process (its thread-group leader)"`
	Language  string       `json:"language" col:"LANGUAGE,width=8" help:"language of the method; none for a system call"`
	Function  value.Name   `json:"function" col:"METHOD,width=50" help:"class and method, joined by a dot; for a system call its name and [syscall]"`
	Class     value.Name   `json:"class" col:"CLASS,width=30" help:"Java, PHP, Ruby: the class; Perl: the package; Python: the file; of a longer name ... and the last 96 bytes; absent for Tcl and outside classes"`
	Method    value.Name   `json:"method" col:"NAME,width=20" help:"method, function, subroutine or procedure; of a longer name ... and the last 80 bytes; absent if the name was not in memory (paged out), and for a system call"`
	Syscall   string       `json:"syscall" col:"SYSCALL,width=20" help:"name of the system call; absent for a method"`
	Count     uint64       `json:"count" col:"# CALLS,width=8,right" help:"calls that began in the interval; with --latency, and of Python, calls that returned in it"`
	TotalNs   value.Micros `json:"total_ns" col:"TIME (us),width=14,right" help:"sum of the times from entry to return, including nested calls (CLOCK_MONOTONIC); absent without --latency; text shows microseconds"`
	AverageNs value.Micros `json:"avg_ns" col:"AVG (us),width=12,right" help:"mean time per call; absent without --latency; text shows microseconds"`
	TotalMs   float64      `json:"total_ms" col:"TIME (ms),width=14,right,extra" help:"total_ns in milliseconds; absent without --latency"`
}

func hooks() language.Hooks {
	h := language.Hooks{"none": {}}
	for _, name := range languages() {
		h[name] = []string{name + "_entry", name + "_return"}
	}
	return h
}

func languages() []string { return []string{"java", "perl", "php", "python", "ruby", "tcl"} }

// Tool is the definition of ucalls.
var Tool = tool.Define(tool.Spec{
	Name:     "ucalls",
	Also:     language.Aliases("calls", languages()...),
	Category: "runtime",
	Summary:  "Count method and function calls, with latency, in Java, Perl, PHP, Python, Ruby and Tcl",
	Description: `Counts calls of methods by process, class and method. One report is made at the end, or one per interval.

The hooks are USDT probes of the runtimes: hotspot:method__entry and method__return (Java), perl:sub__entry and sub__return, php:function__entry and function__return, python:function__entry and function__return, ruby:method__entry, method__return, cmethod__entry and cmethod__return (methods that are written in C), tcl:proc__entry and proc__return. The language of a process is that of the runtime that it has mapped. Runtimes in containers and in processes that start later are traced too.

` + language.Builds + `

` + language.Crash + `

Every call costs a trap into the kernel, so programs that make many calls become several times slower.

With --latency a call is counted when it returns. Probes do not identify calls, so a return belongs to the innermost call of the same method in its thread. Calls that were left without a return are counted as no_return in the summary, with those that were running at the end; returns of calls whose entry was not observed as unseen_calls. The time of a recursive call is part of the time of its caller, so the sum for a recursive method exceeds the elapsed time. If a thread switches between stacks (fibers, greenlets), times of methods that are active in several of them can be exchanged.

A generator or coroutine of Python counts as a call each time it is resumed. The probe at the entry of functions does not fire in Python 3.11 (DTRACE_FUNCTION_ENTRY is not reached there), so calls of Python are counted when they return, and --latency is refused for a process of 3.11. Among all processes, its returns are counted as unseen_calls. Ruby fires the probes of methods that are written in Ruby only while a TracePoint of :call and :return is enabled in the program; those of C methods always.

With --syscalls, the system calls of the process are counted too, also those of its other threads and of 32-bit code.`,
	Peers: []string{
		"Without a PID all processes are traced. With a PID the language is detected; -l is only needed for a process that runs several.",
		"Recursive calls are measured each on their own; in BCC an inner call replaces the entry of the outer one.",
		"Rows are sorted by count or time, greatest first; BCC prints the greatest last. -T limits all formats.",
		"A subroutine of Perl has its package; BCC shows the file. Names are cut to 96 and 80 bytes from the end; BCC cuts both to 80 bytes from the start.",
		"-l none -S counts system calls only. -S needs a PID. System calls are counted by their names, also those of 32-bit tasks.",
	},
	Examples: []string{
		"ucalls 1234                # method calls of a process, until Ctrl-C",
		"ucalls -L -T 10 1234 5     # the ten methods with the most time, every 5 seconds",
		"ucalls -l python           # of all Python programs",
		"ucalls -l none -S -L 1234  # only system calls, with their time",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if o.Syscalls && len(env.PIDs) == 0 {
		return nil, errors.New("--syscalls needs a process (PID)")
	}
	if o.Language == "none" && !o.Syscalls {
		return nil, errors.New("--language none without --syscalls: nothing to count")
	}
	hint := "returns of calls that began before the run"
	if o.Language == "" || o.Language == "python" {
		hint += ", or of Python 3.11, which fires no probe at the entry of functions"
	}
	o.Entries = o.Latency
	plan := tool.Plan{Without: o.without(), RowNoun: "call", Hints: map[string]string{"unseen_calls": hint}}
	if err := o.Plan(&plan, loadBpf, hooks(), env.PIDs); err != nil {
		return nil, err
	}
	names := value.NewSyscalls()
	return &source.Table[key, counts, row]{
		Plan:    plan,
		Rounds:  source.Rounds{Every: o.Every, Count: o.Count},
		Ranking: source.Ranking{Sort: o.sort(), Rows: o.Top},
		Columns: o.columns(env),
		Off:     o.off(),
		Label:   func(k *key, _ *counts) row { return label(k, names) },
		Fill:    fill,
	}, nil
}

// without returns the hooks that these options do not need.
func (o *options) without() (names []string) {
	if !o.Latency {
		for _, name := range languages() {
			names = append(names, name+"_return")
		}
		names[slices.Index(names, "python_return")] = "python_entry" // see method_return()
		names = append(names, "exit", "ended")
	}
	if !o.Syscalls {
		names = append(names, "enter", "exit")
	}
	return names
}

func (o *options) sort() string {
	switch {
	case o.Sort != "":
		return o.Sort
	case o.Latency:
		return "total_ns"
	}
	return "count"
}

func (o *options) columns(env *tool.Env) (keys []string) {
	if len(env.PIDs) != 1 {
		keys = append(keys, "pid", "comm")
	}
	keys = append(keys, "function", "count")
	switch {
	case o.Latency && o.Milliseconds:
		keys = append(keys, "total_ms")
	case o.Latency:
		keys = append(keys, "total_ns")
	}
	return keys
}

func (o *options) off() (keys []string) {
	if !o.Latency {
		keys = append(keys, "total_ns", "avg_ns", "total_ms")
	}
	if !o.Syscalls {
		keys = append(keys, "syscall")
	}
	return keys
}

func label(k *key, names *value.Syscalls) row {
	r := row{CgroupID: k.CgroupID, PID: k.PID, Comm: value.NameOf(k.Comm[:]), Language: language.Name(k.Language)}
	if k.Language == 0 {
		r.Syscall = names.Name(value.ABI(k.ABI), k.NR)
		r.Function = value.Name(r.Syscall + " [syscall]")
		return r
	}
	r.Class, r.Method = language.Text(k.Class[:]), language.Text(k.Method[:])
	r.Function = value.Name(strings.TrimPrefix(string(r.Class)+"."+string(r.Method), "."))
	return r
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Count, r.TotalNs = c.Count, value.Micros(c.TotalNs)
	r.TotalMs = float64(c.TotalNs) / 1e6
	if c.Count > 0 {
		r.AverageNs = value.Micros(c.TotalNs / c.Count)
	}
}
