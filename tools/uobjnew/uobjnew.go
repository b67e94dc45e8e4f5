// Package uobjnew counts objects that programs create.
package uobjnew

import (
	"errors"
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/language"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh uobjnew.bpf.c -type kind

type options struct {
	language.Process
	Every    flags.Duration `flag:"interval,i" pos:"interval" arg:"TIME" zero:"none" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default, and for 0"`
	Count    uint64         `pos:"count" min:"1" help:"number of reports; unlimited by default"`
	TopCount uint64         `flag:"top-count,C" arg:"N" min:"1" help:"show only the N types with the most objects"`
	TopSize  uint64         `flag:"top-size,S" arg:"N" min:"1" help:"show only the N types with the most bytes"`
	Sort     string         `flag:"sort,s" arg:"COLUMN" help:"sort by this column, greatest first (+COLUMN: least first); default: bytes, with --top-count count"`
}

// key mirrors struct table_key.
type key struct {
	CgroupID, Size      uint64
	Class               [96]byte
	Comm                value.Comm
	PID, Language, Kind uint32
	_                   uint32
}

// counts mirrors struct table_value.
type counts struct{ Count, Bytes, Elements uint64 }

type row struct {
	CgroupID uint64
	PID      uint32      `json:"pid" col:"PID,width=7" help:"process, in the initial PID namespace"`
	Comm     value.Name  `json:"comm" col:"COMM,width=16" help:"name of the process (its thread-group leader)"`
	Language string      `json:"language" col:"LANGUAGE,width=8" help:"language of the program"`
	Type     value.Name  `json:"object_type" col:"NAME/TYPE,width=30" help:"Java, Ruby: the class; of a longer name ... and the last 96 bytes; Ruby: also String, Array, Hash and Symbol, without their subclasses' names; Tcl: Tcl_Obj; C: the requested size"`
	Block    value.Count `json:"block_bytes" col:"BLOCK,width=10,right" help:"C: requested bytes of each block; absent in other languages"`
	Count    uint64      `json:"count" col:"# ALLOCS,width=12,right" help:"objects that were created in the interval"`
	Bytes    value.Count `json:"bytes" col:"# BYTES,width=12,right" help:"sum of their sizes; Java: in the heap, absent for JDK 17 and earlier; C: requested; Ruby: of the contents of strings; absent for other objects, whose size is unknown"`
	Elements value.Count `json:"elements" col:"ELEMENTS,width=10,right" help:"Ruby: requested number of elements of arrays and hashes; absent for other objects"`
}

func hooks() language.Hooks {
	return language.Hooks{"c": {"c"}, "java": {"java"}, "ruby": {"ruby"}, "tcl": {"tcl"}}
}

// Tool is the definition of uobjnew.
var Tool = tool.Define(tool.Spec{
	Name:     "uobjnew",
	Also:     language.Aliases("objnew", "c", "java", "ruby", "tcl"),
	Category: "runtime",
	Summary:  "Count new objects (allocations) by type in Java, Ruby and Tcl, and by size in C (malloc)",
	Description: `Counts the objects that programs create, by process and type. One report is made at the end, or one per interval. What is freed does not matter: memleak(8) shows what remains.

The hooks are USDT probes of the runtimes: hotspot:object__alloc (Java), ruby:object__create, string__create, array__create, hash__create and symbol__create, tcl:obj__create. In C, calls of malloc(3) in the C library are counted by their size when they begin, also if they fail; not calls of calloc(3), realloc(3) and other functions, and not those of programs with an allocator of their own.

` + language.Builds + `

In JDK 17 and earlier, Java's interpreter passes no size to its probe, so the bytes of its objects are absent.

C is only traced with -l c or as cobjnew, or if the given process runs none of the other languages. Every object costs a trap into the kernel, so programs that create many objects become several times slower. With a PID, probes of malloc slow down only this process.`,
	Peers: []string{
		"Without a PID all processes are traced, with -l c too. With a PID the language is detected.",
		"-C and -S limit all formats. Rows are sorted greatest first; BCC prints the greatest last.",
		"# BYTES of Ruby's arrays and hashes is -: the probes have the number of elements, which BCC shows there.",
	},
	Examples: []string{
		"uobjnew 1234           # objects of a process, until Ctrl-C",
		"uobjnew -C 10 1234 5   # the ten most frequent types, every 5 seconds",
		"uobjnew -l c -S 5 1234 # the five block sizes with the most bytes",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{Process: language.Process{Options: language.Options{Last: "c"}}}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if o.TopCount > 0 && o.TopSize > 0 {
		return nil, errors.New("--top-count and --top-size cannot be combined")
	}
	t := &source.Table[key, counts, row]{
		Plan:    tool.Plan{RowNoun: "object"},
		Rounds:  source.Rounds{Every: o.Every, Count: o.Count},
		Ranking: source.Ranking{Sort: "bytes", Rows: max(o.TopCount, o.TopSize)},
		Columns: []string{"object_type", "count", "bytes"},
		Label:   label,
		Fill:    fill,
	}
	if o.TopCount > 0 {
		t.Ranking.Sort = "count"
	}
	if o.Sort != "" {
		t.Ranking.Sort = o.Sort
	}
	if len(env.PIDs) != 1 {
		t.Columns = append([]string{"pid", "comm"}, t.Columns...)
	}
	return t, o.Plan(&t.Plan, loadBpf, hooks(), env.PIDs)
}

func label(k *key, _ *counts) row {
	r := row{CgroupID: k.CgroupID, PID: k.PID, Comm: value.NameOf(k.Comm[:]), Language: language.Name(k.Language)}
	switch kind := bpfKind(k.Kind); kind {
	case bpfKindOBJECT, bpfKindUNSIZED:
		r.Type = language.Text(k.Class[:])
	case bpfKindBLOCK:
		r.Block = value.Count{N: k.Size, Given: true}
		r.Type = value.Name(fmt.Sprintf("block size %d", k.Size))
	default:
		r.Type = map[bpfKind]value.Name{
			bpfKindSTRING: "String", bpfKindARRAY: "Array", bpfKindHASH: "Hash", bpfKindSYMBOL: "Symbol", bpfKindTCL_OBJ: "Tcl_Obj",
		}[kind]
	}
	switch bpfKind(k.Kind) {
	case bpfKindOBJECT, bpfKindBLOCK, bpfKindSTRING:
		r.Bytes.Given = true
	case bpfKindARRAY, bpfKindHASH:
		r.Elements.Given = true
	}
	return r
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Count, r.Bytes.N, r.Elements.N = c.Count, c.Bytes, c.Elements
}
