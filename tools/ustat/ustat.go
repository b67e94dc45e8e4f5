// Package ustat shows the activity of programs in high-level languages.
package ustat

import (
	"strings"
	"time"

	"github.com/corescope/corescope/internal/language"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh ustat.bpf.c

type options struct {
	language.Options
	source.Top
	Debug bool `flag:"debug" help:"no effect, for compatibility with BCC: --explain shows the programs"`
}

// key mirrors struct table_key.
type key struct {
	CgroupID      uint64
	PID, Language uint32
}

// counts mirrors struct table_value.
type counts struct {
	Methods, Collections, Objects, Loads, Exceptions, Threads uint64
	SinceNs                                                   source.Since
	Comm                                                      value.Comm
	Args                                                      [96]byte
}

type row struct {
	CgroupID    uint64
	PID         uint32      `json:"pid" col:"PID,width=7" help:"process, in the initial PID namespace"`
	Comm        value.Name  `json:"comm" col:"COMM,width=16" help:"name of the process (its thread-group leader)"`
	Language    string      `json:"language" col:"LANGUAGE,width=8" help:"language of the program"`
	Command     value.Name  `json:"command" col:"CMDLINE,width=20" help:"the first 96 bytes of its command line"`
	Methods     value.Count `json:"methods" col:"METHODS,width=10,right" help:"Java, Perl, PHP, Ruby, Tcl: calls of methods, subroutines or procedures that began in the interval; Python: calls of functions that returned; absent for Node.js"`
	Collections value.Count `json:"collections" col:"GCS,width=8,right" help:"garbage collections that began; Ruby: mark phases; absent for Perl, PHP and Tcl"`
	Objects     value.Count `json:"objects" col:"OBJECTS,width=10,right" help:"objects that were created; absent for Node.js, Perl, PHP and Python"`
	Loads       value.Count `json:"loads" col:"LOADS,width=8,right" help:"Java: classes that were loaded; PHP: files that were compiled; Python: imports that search a module; Ruby: calls of require and load; absent for others"`
	Exceptions  value.Count `json:"exceptions" col:"EXCEPTIONS,width=10,right" help:"PHP, Ruby: exceptions that were thrown or raised; absent for others"`
	Threads     value.Count `json:"threads" col:"THREADS,width=8,right" help:"Java: threads that started; absent for others"`
	MethodRate  rate        `json:"methods_per_s" col:"METHOD/s,width=9,right" help:"methods per second"`
	GCRate      rate        `json:"collections_per_s" col:"GC/s,width=6,right" help:"collections per second"`
	ObjectRate  rate        `json:"objects_per_s" col:"OBJNEW/s,width=9,right" help:"objects per second"`
	LoadRate    rate        `json:"loads_per_s" col:"CLOAD/s,width=8,right" help:"loads per second"`
	ExcRate     rate        `json:"exceptions_per_s" col:"EXC/s,width=6,right" help:"exceptions per second"`
	ThreadRate  rate        `json:"threads_per_s" col:"THR/s,width=6,right" help:"threads per second"`
}

// rate is an optional value.Rate.
type rate struct {
	value.Rate
	Given bool
}

func (r *rate) Absent() bool { return !r.Given }

// has lists what the runtimes of each language have probes for.
func has() map[string]string {
	return map[string]string{
		"java": "methods collections objects loads threads", "node": "collections", "perl": "methods", "php": "methods loads exceptions",
		"python": "methods collections loads", "ruby": "methods collections objects loads exceptions", "tcl": "methods objects",
	}
}

// canBeOff lists what is 0 if the probes do not exist, or are not enabled in a process: 0 is not shown then.
func canBeOff() map[string]string {
	return map[string]string{"java": "methods objects", "python": "methods", "ruby": "methods"}
}

func hooks() language.Hooks {
	h := language.Hooks{}
	for name := range has() {
		h[name] = []string{name}
	}
	h["ruby"] = append(h["ruby"], "rubymethod")
	return h
}

// Tool is the definition of ustat.
var Tool = tool.Define(tool.Spec{
	Name:     "ustat",
	Also:     language.Aliases("stat", "java", "node", "perl", "php", "python", "ruby", "tcl"),
	Category: "runtime",
	Summary:  "Activity of Java, Node.js, Perl, PHP, Python, Ruby and Tcl programs, as a top-like table: methods, GCs, objects, exceptions, threads",
	Description: `Shows for each process of these languages, per interval (one second by default), the rates of method calls, garbage collections, new objects, loads of classes or modules, exceptions and new threads. What the probes of a language do not have is -. Processes without any of these in an interval are not shown.

The hooks are USDT probes of the runtimes, and for Node.js the function v8::internal::Heap::CollectGarbage: --explain lists them. Runtimes in containers and in processes that start later are traced too. What a process has none of in an interval, because these probes are not enabled or, from Python 3.12 on, do not exist, is - too: methods of Java, Python and Ruby, and Java's objects. Ruby's probes of methods that are written in Ruby fire only while a TracePoint of :call and :return is enabled in the program.

` + language.Builds + `

` + language.Crash + `

Every call and object costs a trap into the kernel, so programs become several times slower if these probes are enabled in them. ucalls(8), ugc(8), uobjnew(8) and uthreads(8) show details.`,
	Peers: []string{
		"-S also accepts the names of BCC: cload, excp, gc, method, objnew, thread. Rows are sorted by methods by default; BCC sorts by PID.",
		"Node.js: V8's function is traced instead of USDT probes, which Node.js 19 removed.",
		"Python: function returns are counted, because 3.11 fires no probe at the entry; imports are CLOAD.",
		"-d is --duration. BCC's -d is --debug, which has no effect.",
	},
	Examples: []string{
		"ustat                 # all programs, each second",
		"ustat -S gc 5 3       # by garbage collections, three tables of five seconds",
		"ustat -l python -r 5  # the five busiest Python programs",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d", "sort": "S"},
}, options{Top: source.TopBy("methods")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	t := &source.Table[key, counts, row]{
		Plan: tool.Plan{RowNoun: "process"}, Top: &o.Top,
		Columns: []string{
			"pid", "command", "methods_per_s", "collections_per_s", "objects_per_s", "loads_per_s", "exceptions_per_s", "threads_per_s",
		},
		SortNames: map[string]string{
			"method": "methods", "gc": "collections", "objnew": "objects", "cload": "loads", "excp": "exceptions", "thread": "threads",
		},
		Label: label, Fill: fill,
	}
	return t, o.Plan(&t.Plan, loadBpf, hooks(), env.PIDs)
}

func label(k *key, c *counts) row {
	args := strings.ReplaceAll(strings.TrimRight(string(c.Args[:]), "\x00"), "\x00", " ")
	return row{CgroupID: k.CgroupID, PID: k.PID, Language: language.Name(k.Language), Comm: value.NameOf(c.Comm[:]), Command: value.Name(args)}
}

func fill(r *row, c *counts, length time.Duration) {
	for _, f := range []struct {
		name  string
		n     uint64
		count *value.Count
		rate  *rate
	}{
		{"methods", c.Methods, &r.Methods, &r.MethodRate}, {"collections", c.Collections, &r.Collections, &r.GCRate},
		{"objects", c.Objects, &r.Objects, &r.ObjectRate}, {"loads", c.Loads, &r.Loads, &r.LoadRate},
		{"exceptions", c.Exceptions, &r.Exceptions, &r.ExcRate}, {"threads", c.Threads, &r.Threads, &r.ThreadRate},
	} {
		given := strings.Contains(has()[r.Language], f.name) && (f.n > 0 || !strings.Contains(canBeOff()[r.Language], f.name))
		*f.count = value.Count{N: f.n, Given: given}
		*f.rate = rate{value.NewRate(f.n, length.Nanoseconds()), given}
	}
}
