// Package ugc traces garbage collections of high-level languages.
package ugc

import (
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/language"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh ugc.bpf.c -type phase

type options struct {
	language.Process
	Milliseconds bool               `flag:"milliseconds,m" help:"show the time in milliseconds instead of microseconds"`
	Minimum      flags.Milliseconds `flag:"minimum,M" arg:"MS" bpf:"targ_min_ns" help:"only collections of at least this time: milliseconds, or with a unit as 500us"`
	Text         string             `flag:"filter-text,F" arg:"TEXT" help:"only if the description contains this text"`
}

type event struct {
	value.Task
	Latency   value.Micros `json:"delta_ns" col:"TIME (us),width=12,right" help:"time from start to end of the collection or phase (CLOCK_BOOTTIME); text shows microseconds" btf:"delta_ns"`
	What      uint64
	Collected int64
	Language  uint32
	Phase     uint32
}

type row struct {
	event
	source.Elapsed
	Millis      float64     `json:"delta_ms" col:"TIME (ms),width=12,right,extra" help:"delta_ns in milliseconds"`
	Name        string      `json:"language" col:"LANGUAGE,width=8" help:"language of the program"`
	Description string      `json:"description" col:"DESCRIPTION,width=40" help:"what was collected: Java: full if the whole heap was requested; Node: young if only new objects were collected (Scavenge, MinorMarkSweep), full with MarkCompact; Python: the generation and the number of collected objects; Ruby: the phase, mark or sweep"`
	Generation  value.Count `json:"generation" col:"GENERATION,width=10,right" help:"Python: the oldest generation that was collected; absent in other languages"`
	Objects     value.Count `json:"collected" col:"COLLECTED,width=10,right" help:"Python: number of collected and uncollectable objects; absent in other languages"`
}

func hooks() language.Hooks {
	return language.Hooks{"java": {"java"}, "node": {"node"}, "python": {"python"}, "ruby": {"ruby"}}
}

// Tool is the definition of ugc.
var Tool = tool.Define(tool.Spec{
	Name:     "ugc",
	Also:     language.Aliases("gc", "node", "python", "ruby"),
	Category: "runtime",
	Summary:  "Trace garbage collections (GC pauses) in Java, Node.js, Python and Ruby",
	Description: `Shows each garbage collection when it ends, with its duration. The collecting thread does nothing else meanwhile; in Java, collections are those that stop the program.

The hooks are USDT probes of the runtimes: hotspot:gc__begin and gc__end (Java), python:gc__start and gc__done, ruby:gc__mark__begin, gc__mark__end, gc__sweep__begin and gc__sweep__end. Node.js has no probes since version 19: the function v8::internal::Heap::CollectGarbage is traced in node and libnode.so, with Scavenge and MarkCompact, which it calls. It includes the callbacks of the program and of Node.js for collections, and not what V8 does concurrently, in small steps of incremental marking, or by the idle-time collector of C++ objects. ` + tool.ReturnsManual + `

` + language.Builds + `

javagc(8) shows the memory pools of Java with their sizes. Collections that had begun before the tool started are counted as unseen_calls in the summary, those that have not ended at the end as no_return.`,
	Peers: []string{
		"Without a PID all processes are traced. With a PID the language is detected; -l is only needed for a process that runs several.",
		"Node.js: V8's function is traced instead of USDT probes, which Node.js 19 removed. The description has the requested space instead of flags.",
		"Java: each pause has a row; BCC has one per memory pool, as rows \"pool\" of javagc have here.",
		"BCC's --filter is --filter-text (-F). -M accepts fractions and units.",
	},
	Examples: []string{
		"ugc                  # all collections of all languages",
		"ugc -M 10 1234       # collections of 10 ms or more in a process",
		"ugc -l python -F 'gen 2'  # collections of the oldest generation of Python",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	src := &source.Events[row]{
		Plan:        tool.Plan{RowNoun: "collection"},
		Columns:     []string{"elapsed_ns", "delta_ns", "description"},
		Headers:     map[string]string{"elapsed_ns": "START"},
		BufferBytes: 1 << 20,
	}
	if o.Milliseconds {
		src.Columns[1] = "delta_ms"
	}
	if len(env.PIDs) != 1 {
		src.Columns = append([]string{"elapsed_ns", "pid", "comm", "language"}, src.Columns[1:]...)
	}
	if o.Text != "" {
		src.Keep = func(r *row) bool { return strings.Contains(r.Description, o.Text) }
	}
	return src, o.Plan(&src.Plan, loadBpf, hooks(), env.PIDs)
}

// Decode describes the collection.
func (r *row) Decode([]byte) error {
	r.Name, r.Millis = language.Name(r.Language), float64(r.Latency)/1e6
	r.Generation, r.Objects = value.Count{}, value.Count{}
	switch r.Name {
	case "java":
		r.Description = either(r.What != 0, "GC of the whole heap", "GC")
	case "node":
		r.Description = [...]string{"GC", "GC young", "GC full", "GC full"}[r.What&3] // V8_YOUNG, V8_FULL
	case "python":
		r.Generation, r.Objects = value.Count{N: r.What, Given: true}, value.Count{N: uint64(max(r.Collected, 0)), Given: true}
		r.Description = fmt.Sprintf("gen %d GC collected %d objects", r.Generation.N, r.Objects.N)
	default:
		r.Description = either(bpfPhase(r.Phase) == bpfPhaseMARK, "GC mark stage", "GC sweep stage")
	}
	return nil
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
